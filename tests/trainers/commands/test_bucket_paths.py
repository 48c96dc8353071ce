"""Tests of commands with paths in an emulator of Cloud Storage, each command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bert_model.checkpoints import tensor_bundle
from tests.conftest import ROOT, command, with_slow
from tests.deploy.dataflow.gcp_stand_in import BUCKET, stand_in

# Enough steps to kill a run long before its end: uploads start every two seconds.
STEPS = 1500
SHAPE = {
    "vocab_size": 2000,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
URL = f"gs://{BUCKET}"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory, built):
    with stand_in(tmp_path_factory.mktemp("cloud")) as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        here.upload(built, "data")
        yield here


@pytest.fixture
def environment(cloud, tmp_path):
    return {**os.environ, **cloud.environment, "BEAMBERT_CACHE": str(tmp_path / "cache")}


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Flags of a run with a small model and many steps."""
    model = tmp_path_factory.mktemp("shape") / "model.json"
    model.write_text(json.dumps(SHAPE), encoding="utf-8")
    flags = ["--model", str(model), "--num_train_steps", str(STEPS), "--save_checkpoints_steps", "100"]
    return [*flags, "--train_batch_size", "8", "--max_eval_steps", "2"]


@pytest.fixture(scope="module")
def local_run(built, flags, tmp_path_factory):
    output = tmp_path_factory.mktemp("local") / "run"
    result = command("pretrain", "--data", built, "--output", output, *flags)
    assert result.returncode == 0, result.stderr
    return output


def contents_below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tensors(folder, step):
    return {
        name: tensor.read().tobytes()
        for name, tensor in tensor_bundle.read(folder / f"checkpoints/model.ckpt-{step}").items()
    }


def write_below(folder, contents):
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


# Slow on the same machine, where the resumed run waits for the lock of the killed one.
@pytest.mark.parametrize("same_machine", with_slow([True, False], [True]))
def test_a_killed_run_in_a_bucket_resumes_and_ends_as_a_local_one(
    cloud, environment, local_run, flags, tmp_path, same_machine
):
    output = f"runs/{same_machine}"
    argv = ["pretrain", "--data", f"{URL}/data", "--output", f"{URL}/{output}", *flags]
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", *argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    end = time.monotonic() + 300
    # Kill the run once a checkpoint is in the bucket.
    while not any(name.endswith(".index") for name in cloud.contents(f"{output}/checkpoints")):
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < end
        time.sleep(0.1)
    process.kill()
    process.wait()
    uploaded = {name for name in cloud.contents(f"{output}/checkpoints") if name.endswith(".index")}
    assert f"model.ckpt-{STEPS}.index" not in uploaded
    if not same_machine:
        environment["BEAMBERT_CACHE"] = str(tmp_path / "other")
        # A user who does not want to wait may delete the lock.
        cloud.bucket().blob(f"{output}/build.lock").delete()
    result = command(*argv, env=environment)
    assert result.returncode == 0, result.stderr
    assert "Resuming " in result.stdout
    assert ("is locked; waiting 45 s for a sign of its holder" in result.stdout) == same_machine
    assert f"Uploaded  {URL}/{output}" in result.stdout
    # Credentials appear in no message.
    key = json.loads((cloud.folder / "key.json").read_text())
    said = result.stdout + result.stderr
    assert not any(secret in said for secret in (key["private_key"][40:80], key["private_key_id"], "stand-in@"))
    contents = cloud.contents(output)
    assert "build.lock" not in contents
    write_below(tmp_path / "result", contents)
    assert tensors(tmp_path / "result", STEPS) == tensors(local_run, STEPS)
    assert json.loads(contents["run.json"])["options"]["output"] == f"{URL}/{output}"
    assert json.loads(contents["run.json"])["options"]["data"] == [f"{URL}/data"]
    assert contents["eval_results.txt"] == (local_run / "eval_results.txt").read_bytes()


def test_models_are_read_and_written_in_a_bucket(cloud, environment, local_run, tmp_path):
    cloud.upload(local_run, "model")
    (tmp_path / "lines.txt").write_text("The statement returns a value.\nA class has methods.\n")
    cloud.upload(tmp_path, "texts")
    model, lines = f"{URL}/model", f"{URL}/texts/lines.txt"

    def ran(*argv):
        result = command(*argv, env=environment)
        assert result.returncode == 0, result.stderr
        return result.stdout

    text = "The [MASK] statement."
    local = command("fill-mask", local_run, text).stdout
    assert ran("fill-mask", model, text).endswith(local)
    assert ran("fill-mask", f"{model}/checkpoints/model.ckpt-{STEPS}", text).endswith(local)
    ran("convert", model, f"{URL}/hf", "--to", "huggingface")
    assert command("convert", local_run, tmp_path / "hf", "--to", "huggingface").returncode == 0
    assert cloud.contents("hf") == contents_below(tmp_path / "hf")
    assert ran("fill-mask", f"{URL}/hf", text).splitlines()[-5:] == local.splitlines()[-5:]
    flags = ["--input_file", lines, "--init_checkpoint", model, "--pooling", "mean"]
    ran("features", *flags, "--output_file", f"{URL}/vectors.jsonl")
    vectors = cloud.contents("")["vectors.jsonl"]
    assert len(vectors.splitlines()) == 2
    result = command("features", *flags, "--output_file", f"{URL}/vectors.jsonl", env=environment)
    assert result.returncode == 1
    assert f"--output_file {URL}/vectors.jsonl already exists; use --overwrite" in result.stderr
    ran("features", *flags, "--output_file", f"{URL}/vectors.jsonl", "--overwrite")
    assert cloud.contents("")["vectors.jsonl"] == vectors
    ran("export", f"{URL}/hf", f"{URL}/exported", "--max_seq_length", "64")
    assert {"saved_model.pb", "assets/vocab.txt"} <= cloud.contents("exported").keys()
    result = command("convert", model, f"{URL}/hf", "--to", "tf1", env=environment)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"{URL}/hf already exists" in result.stderr
    assert cloud.contents("hf") == contents_below(tmp_path / "hf")


def test_a_model_is_fine_tuned_and_used_in_a_bucket(cloud, environment, local_run, tmp_path):
    table = tmp_path / "table"
    table.mkdir()
    rows = "".join(f"good text {number},good\nbad text {number},bad\n" for number in range(20))
    for name in ("train", "dev"):
        (table / f"{name}.csv").write_text(f"text,label\n{rows}")
    cloud.upload(table, "table")
    cloud.upload(local_run, "pretrained")
    flags = ["--init_checkpoint", f"{URL}/pretrained", "--num_train_epochs", "1", "--max_seq_length", "32"]
    argv = ["finetune", "csv", "--data_dir", f"{URL}/table", "--output", f"{URL}/tuned", *flags]
    result = command(*argv, env=environment)
    assert result.returncode == 0, result.stderr
    assert {"beambert.json", "eval_results.txt", "run.json"} <= cloud.contents("tuned").keys()
    (tmp_path / "lines.txt").write_text("good text\nbad text\n")
    cloud.bucket().blob("lines.txt").upload_from_filename(tmp_path / "lines.txt")
    argv = [
        "predict",
        f"{URL}/tuned",
        "--input_file",
        f"{URL}/lines.txt",
        "--output_file",
        f"{URL}/out.jsonl",
        "--json",
    ]
    result = command(*argv, env=environment)
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in cloud.contents("")["out.jsonl"].splitlines()]
    assert [answer["text"] for answer in answers] == ["good text", "bad text"]


def test_inspect_and_plan_read_a_bucket(cloud, environment, built, articles):
    cloud.upload(articles, "articles")
    result = command("inspect", f"{URL}/data", env=environment)
    assert result.returncode == 0, result.stderr
    assert f"{URL}/data is a dataset of" in result.stdout
    assert command("inspect", f"{URL}/data/", env=environment).stdout == result.stdout
    result = command("plan", "--input", f"{URL}/articles/*.jsonl", env=environment)
    assert result.returncode == 0, result.stderr


def test_ctrl_c_saves_and_uploads(cloud, environment, flags):
    argv = ["pretrain", "--data", f"{URL}/data", "--output", f"{URL}/stopped", *flags]
    argv[argv.index(str(STEPS))] = "100000"
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", *argv],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # If a shell starts the tests in the background, they inherit an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for line in process.stdout:
        if line.startswith("step "):
            process.send_signal(signal.SIGINT)
            break
    rest = process.communicate(timeout=300)[0]
    assert process.returncode == 130, rest
    contents = cloud.contents("stopped")
    assert any(name.endswith(".index") for name in contents)
    assert "build.lock" not in contents


def test_a_public_bucket_is_read_without_credentials_and_without_beam(cloud, environment, local_run, tmp_path):
    cloud.upload(local_run, "public")
    del environment["GOOGLE_APPLICATION_CREDENTIALS"]
    argv = ["fill-mask", f"{URL}/public", "The [MASK] statement."]
    code = f"import sys; sys.modules['apache_beam'] = None; import beambert; sys.exit(beambert.main({argv}))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "The [MASK] statement." in result.stdout


def test_a_missing_package_is_a_one_line_error(environment):
    argv = ["fill-mask", f"{URL}/public", "The [MASK] statement."]
    code = f"import sys; sys.modules['google.cloud.storage'] = None; import beambert; sys.exit(beambert.main({argv}))"
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        f"beambert fill-mask: error: {URL}/public requires the package google-cloud-storage, which is not installed; "
        "run pip install 'beambert[gcs]'\n"
    )


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["pretrain", "--data", f"{URL}/dat", "--output", "x"], f"{URL}/dat does not exist; check the path"),
        (["pretrain", "--data", f"{URL}/texts", "--output", "x"], f"{URL}/texts is not a dataset"),
        (["pretrain", "--data", "gs://nowhere/data", "--output", "x"], "bucket nowhere does not exist"),
        (["pretrain", "--data", f"{URL}/data", "--output", f"{URL}"], f"{URL} is not a path in a bucket"),
        (["pretrain", "--data", f"{URL}/data", "--output", f"{URL}/data"], f"--output {URL}/data"),
        (["predict", f"{URL}/a/../b", "text"], f"{URL}/a/../b has a part that is not a file name"),
        (["finetune", "csv", "--output", "x", "--cache_dir", f"{URL}/c"], f"--cache_dir {URL}/c is not supported"),
    ],
)
def test_an_invalid_path_is_a_one_line_error_and_changes_nothing(cloud, environment, argv, says, tmp_path):
    cloud.bucket().blob("texts/lines.txt").upload_from_string("A file that is not part of a dataset.\n")
    before = cloud.contents("")
    result = command(*argv, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    assert result.returncode in (1, 2)
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert says in lines[0]
    assert cloud.contents("") == before
    assert not (tmp_path / "x").exists()
