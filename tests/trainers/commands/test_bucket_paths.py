"""Tests of commands with paths in an emulator of Cloud Storage. Runs train in numpy."""

import json
import os
import signal
import sys
import threading

import google.cloud.storage
import pytest

from beambert import cli
from beambert.bert_model.checkpoints import tensor_bundle
from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.buckets import objects, output_copy
from beambert.trainers.monitoring.training_monitor import TrainingMonitor
from beambert.trainers.pretraining import pretraining_run
from tests.deploy.dataflow.gcp_stand_in import BUCKET, stand_in
from tests.forked import Running, command
from tests.trainers import fake_backend
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

URL = f"gs://{BUCKET}"
STEPS = 40
SAVE_STEPS = 10


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pretraining") / "data"
    write_dataset(directory)
    return directory


@pytest.fixture(scope="module")
def cloud(tmp_path_factory, data):
    with stand_in(tmp_path_factory.mktemp("cloud")) as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        objects._client.cache_clear()
        here.upload(data, "data")
        yield here
    objects._client.cache_clear()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A separate cache directory for each test, as on a new machine."""
    monkeypatch.setenv("BEAMBERT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Flags of a run with a small model."""
    model = tmp_path_factory.mktemp("shape") / "model.json"
    model.write_text(SMALLEST.to_json(), encoding="utf-8")
    flags = ["--model", str(model), "--num_train_steps", str(STEPS), "--save_checkpoints_steps", str(SAVE_STEPS)]
    return [*flags, "--train_batch_size", "4", "--max_eval_steps", "2"]


@pytest.fixture(scope="module")
def local_run(data, flags, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["pretrain", "--data", str(data), "--output", str(output), *flags]) == 0
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


def at_step(patch, step, act):
    """Call a function after a step of training."""
    update = TrainingMonitor.update

    def updated(self, made, *arguments, **named):
        update(self, made, *arguments, **named)
        if made == step:
            act()

    patch.setattr(TrainingMonitor, "update", updated)


def wait_after_two_checkpoints():
    """Train in numpy, upload often, and wait after the second checkpoint until the process is killed."""
    patch = pytest.MonkeyPatch()
    fake_backend.install(patch)
    patch.setattr(output_copy, "_POLL_SECONDS", 0.05)
    at_step(patch, 2 * SAVE_STEPS + 3, threading.Event().wait)


def test_a_killed_run_in_a_bucket_resumes_on_another_machine_and_ends_as_a_local_one(
    cloud, local_run, flags, tmp_path, monkeypatch, capsys
):
    output = f"runs/{tmp_path.name}"
    argv = ["pretrain", "--data", f"{URL}/data", "--output", f"{URL}/{output}", *flags]
    killed = Running(*argv, before=wait_after_two_checkpoints)
    index = cloud.bucket().blob(f"{output}/checkpoints/model.ckpt-{2 * SAVE_STEPS}.index")
    killed.wait_for(index.exists)
    killed.kill()
    killed.process.join()
    assert "build.lock" in cloud.contents(output)
    # A user who does not want to wait may delete the lock.
    cloud.bucket().blob(f"{output}/build.lock").delete()
    monkeypatch.setenv("BEAMBERT_CACHE", str(tmp_path / "other"))
    assert cli.main(argv) == 0
    captured = capsys.readouterr()
    assert f"from step {2 * SAVE_STEPS} of {STEPS}" in captured.out
    assert f"Uploaded  {URL}/{output}" in captured.out
    # Credentials appear in no message.
    key = json.loads((cloud.folder / "key.json").read_text())
    said = captured.out + captured.err + killed.output()
    assert not any(secret in said for secret in (key["private_key"][40:80], key["private_key_id"], "stand-in@"))
    contents = cloud.contents(output)
    assert "build.lock" not in contents
    write_below(tmp_path / "result", contents)
    assert tensors(tmp_path / "result", STEPS) == tensors(local_run, STEPS)
    options = json.loads(contents["run.json"])["options"]
    assert (options["output"], options["data"]) == (f"{URL}/{output}", [f"{URL}/data"])
    assert contents["eval_results.txt"] == (local_run / "eval_results.txt").read_bytes()


def test_an_upload_while_the_model_is_built_changes_no_weight(cloud, local_run, data, flags, tmp_path, monkeypatch):
    """Google's client draws from the generator of `random`, in threads that renew the lock or upload files."""

    def built(*arguments, **named):
        cloud.bucket().blob("lock").upload_from_string(b"content")
        return BertForPretraining(*arguments, **named)

    monkeypatch.setattr(pretraining_run, "BertForPretraining", built)
    assert cli.main(["pretrain", "--data", str(data), "--output", str(tmp_path / "run"), *flags]) == 0
    assert tensors(tmp_path / "run", STEPS) == tensors(local_run, STEPS)


def test_ctrl_c_saves_and_uploads(cloud, flags, monkeypatch):
    at_step(monkeypatch, 5, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert cli.main(["pretrain", "--data", f"{URL}/data", "--output", f"{URL}/stopped", *flags]) == 130
    contents = cloud.contents("stopped")
    assert "checkpoints/model.ckpt-5.index" in contents
    assert "build.lock" not in contents


def test_models_are_read_and_written_in_a_bucket(cloud, local_run, tmp_path, capsys):
    cloud.upload(local_run, "model")
    (tmp_path / "lines.txt").write_text("ba be.\nbi bo bu.\n")
    cloud.bucket().blob("lines.txt").upload_from_filename(tmp_path / "lines.txt")

    def ran(*argv):
        capsys.readouterr()
        assert cli.main([str(argument) for argument in argv]) == 0
        return capsys.readouterr().out

    def refused(*argv):
        capsys.readouterr()
        assert cli.main([str(argument) for argument in argv]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    text = "ba [MASK]."
    local = ran("fill-mask", local_run, text)
    assert ran("fill-mask", f"{URL}/model", text).endswith(local)
    assert ran("fill-mask", f"{URL}/model/checkpoints/model.ckpt-{STEPS}", text).endswith(local)
    ran("convert", f"{URL}/model", f"{URL}/hf", "--to", "huggingface")
    ran("convert", local_run, tmp_path / "hf", "--to", "huggingface")
    assert cloud.contents("hf") == contents_below(tmp_path / "hf")
    assert f"{URL}/hf already exists" in refused("convert", f"{URL}/model", f"{URL}/hf", "--to", "tf1")
    assert cloud.contents("hf") == contents_below(tmp_path / "hf")
    features = ["features", "--input_file", f"{URL}/lines.txt", "--init_checkpoint", f"{URL}/model"]
    features += ["--pooling", "mean", "--max_seq_length", "16", "--output_file", f"{URL}/vectors.jsonl"]
    ran(*features)
    vectors = cloud.contents("")["vectors.jsonl"]
    assert len(vectors.splitlines()) == 2
    assert f"--output_file {URL}/vectors.jsonl already exists; use --overwrite" in refused(*features)
    ran(*features, "--overwrite")
    assert cloud.contents("")["vectors.jsonl"] == vectors


def test_a_model_is_fine_tuned_and_used_in_a_bucket(cloud, local_run, tmp_path):
    rows = "".join(f"ba be {number},good\nbi bo {number},bad\n" for number in range(8))
    for name in ("train", "dev"):
        cloud.bucket().blob(f"table/{name}.csv").upload_from_string(f"text,label\n{rows}")
    cloud.upload(local_run, "pretrained")
    flags = ["--init_checkpoint", f"{URL}/pretrained", "--num_train_epochs", "1", "--max_seq_length", "16"]
    argv = ["finetune", "csv", "--data_dir", f"{URL}/table", "--output", f"{URL}/tuned", *flags]
    assert cli.main([*argv, "--train_batch_size", "8"]) == 0
    assert {"beambert.json", "eval_results.txt", "run.json"} <= cloud.contents("tuned").keys()
    cloud.bucket().blob("texts.txt").upload_from_string("ba be\nbi bo\n")
    argv = ["predict", f"{URL}/tuned", "--input_file", f"{URL}/texts.txt", "--output_file", f"{URL}/out.jsonl"]
    assert cli.main([*argv, "--json"]) == 0
    answers = [json.loads(line) for line in cloud.contents("")["out.jsonl"].splitlines()]
    assert [answer["text"] for answer in answers] == ["ba be", "bi bo"]


def test_inspect_and_plan_read_a_bucket(cloud, articles):
    cloud.upload(articles, "articles")
    result = command("inspect", f"{URL}/data/")
    assert result.returncode == 0, result.stderr
    assert f"{URL}/data is a dataset of" in result.stdout
    result = command("plan", "--input", f"{URL}/articles/*.jsonl")
    assert result.returncode == 0, result.stderr


def test_a_public_bucket_is_read_without_credentials(cloud, local_run, tmp_path, monkeypatch, capsys):
    cloud.upload(local_run, "public")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path))
    objects._client.cache_clear()
    assert cli.main(["fill-mask", f"{URL}/public", "ba [MASK]."]) == 0
    objects._client.cache_clear()
    assert "ba [MASK]." in capsys.readouterr().out


def test_a_missing_package_is_a_one_line_error(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    monkeypatch.delattr(google.cloud, "storage")
    objects._client.cache_clear()
    assert cli.main(["fill-mask", f"{URL}/public", "ba [MASK]."]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{URL}/public requires package google-cloud-storage; run pip install 'beambert[gcp]'" in line


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["pretrain", "--data", f"{URL}/dat", "--output", "x"], f"{URL}/dat does not exist; check the path"),
        (["pretrain", "--data", f"{URL}/notes", "--output", "x"], f"{URL}/notes is not a dataset"),
        (
            ["pretrain", "--data", "gs://nowhere/data", "--output", "x"],
            "--data gs://nowhere/data: the bucket cannot be used (",
        ),
        (["pretrain", "--data", f"{URL}/data", "--output", f"{URL}"], f"{URL} is not a path in a bucket"),
        (["pretrain", "--data", f"{URL}/data", "--output", f"{URL}/data"], f"--output {URL}/data"),
        (["predict", f"{URL}/a/../b", "text"], f"{URL}/a/../b has a part that is not a file name"),
    ],
)
def test_an_invalid_path_is_a_one_line_error_and_changes_nothing(cloud, argv, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cloud.bucket().blob("notes/lines.txt").upload_from_string("A file that is not part of a dataset.\n")
    before = cloud.contents("")
    assert cli.main(argv) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert cloud.contents("") == before
    assert not (tmp_path / "x").exists()


def test_a_flag_for_local_paths_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["finetune", "csv", "--output", "x", "--cache_dir", f"{URL}/c"])
    assert f"--cache_dir {URL}/c is not supported" in capsys.readouterr().err
