"""Test the job on a TPU VM: the rewritten command, rejected flags, and copies of an output that grows."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from beambert import cli
from beambert.common import run_snapshot
from beambert.deploy.tpu import bucket_sync, worker
from beambert.deploy.tpu.job import REQUIREMENTS, job_content, job_of, python_of
from beambert.pipelines.errors import SubmitError
from tests.conftest import ROOT
from tests.deploy.tpu.tpu_cloud import Cloud, until


def pretrain(*flags):
    return cli.read_command("pretrain", [*flags])


def test_places_in_buckets_become_paths_and_nothing_else_changes():
    command = pretrain("--data", "gs://b/d128/", "gs://c/d/512", "--output=gs://b/runs/1", "--best_metric", "gs")
    job = job_of(command)
    assert job.argv[:7] == [
        *("pretrain", "--data", "places/b/d128", "places/c/d/512", "--output=places/b/runs/1", "--best_metric", "gs")
    ]
    assert job.backend == "jax"
    assert "--strategy" not in job.argv
    assert job.inputs == [("gs://b/d128", "places/b/d128"), ("gs://c/d/512", "places/c/d/512")]
    assert job.output == ("gs://b/runs/1", "places/b/runs/1")


def test_every_input_of_finetune_is_copied_to_the_vm():
    flags = (
        "squad --train_file gs://b/t.json --predict_file gs://b/p.json --init_checkpoint gs://b/m.zip --output gs://b/r"
    )
    job = job_of(cli.read_command("finetune", flags.split()))
    assert sorted(place for place, _ in job.inputs) == ["gs://b/m.zip", "gs://b/p.json", "gs://b/t.json"]
    assert job.argv[:4] == ["finetune", "squad", "--train_file", "places/b/t.json"]


@pytest.mark.parametrize(
    ("checkpoint", "copied"),
    [
        ("runs/1/checkpoints/model.ckpt-100", "runs/1"),
        ("bert/bert_model.ckpt", "bert"),
        ("bert/model.ckpt-7/", "bert"),
    ],
)
def test_the_directory_of_a_checkpoint_is_copied(checkpoint, copied):
    job = job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", "--init_checkpoint", f"gs://b/{checkpoint}"))
    assert (f"gs://b/{copied}", f"places/b/{copied}") in job.inputs
    assert job.argv[job.argv.index("--init_checkpoint") + 1] == f"places/b/{checkpoint.rstrip('/')}"


def test_a_checkpoint_outside_of_a_directory_is_refused():
    for path in ("gs://b/model.ckpt-100", "gs://b/checkpoints/model.ckpt-100"):
        with pytest.raises(SubmitError, match=r"--init_checkpoint gs://b/.* needs all files of gs://b/: move"):
            job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", f"--init_checkpoint={path}"))


def test_a_model_config_file_is_an_input_and_a_preset_is_not():
    assert job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", "--model=tiny")).inputs == [
        ("gs://b/d", "places/b/d")
    ]
    inputs = job_of(pretrain("--data=gs://b/d", "--output=gs://b/r", "--model=gs://b/c.json")).inputs
    assert ("gs://b/c.json", "places/b/c.json") in inputs


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--data", "d128", "--output", "gs://b/r"),
            r"--data d128 is a local path.*cp --recursive d128 gs://BUCKET/",
        ),
        (("--data", "a b;c", "--output", "gs://b/r"), r"cp --recursive 'a b;c' gs://BUCKET/"),
        (("--data", "gs://b/d", "--output", "run"), r"--output run would be deleted with the TPU VM"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--model", "m.json"), r"--model m.json is a local path"),
        (("--data", "gs://b/d", "--output", "gs://b"), r"gs://b/? is a bucket: use a path in it"),
        (("--data", "gs://b/d", "--output", "gs://b/"), r"gs://b/? is a bucket: use a path in it"),
        (("--data", "gs://b/d", "--output", "gs://b/../r"), r"contains \.\."),
        (("--data", "gs://b/d*", "--output", "gs://b/r"), r"wildcard character"),
        (("--data", "gs://b/d", "--output", "gs://b/d/r"), r"overlap: use a separate"),
        (("--data", "gs://b/d/x", "--output", "gs://b/d"), r"overlap: use a separate"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--tpu_name", "n"), r"--tpu_name does not apply"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--process_id", "1"), r"--process_id does not apply"),
    ],
)
def test_paths_and_flags_that_cannot_work_on_a_vm_are_one_line(flags, message):
    with pytest.raises(SubmitError, match=message) as caught:
        job_of(pretrain(*flags))
    assert "\n" not in str(caught.value)


def test_a_cache_beside_the_output_is_refused():
    flags = "mrpc --data_dir gs://b/d --init_checkpoint gs://b/m --output gs://b/r --cache_dir gs://b/c"
    with pytest.raises(SubmitError, match="--cache_dir"):
        job_of(cli.read_command("finetune", flags.split()))


def test_a_wheel_says_which_python_it_is_for():
    assert python_of(Path("beambert-0.1.0-cp312-cp312-linux_x86_64.whl")) == "3.12"
    assert python_of(Path("beambert-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl")) == "3.11"
    for name in ("beambert-0.1.0-cp312-cp312-macosx_14_0_arm64.whl", "other-1-py3-none-any.whl", "beambert.zip"):
        with pytest.raises(SubmitError, match="Linux on x86-64"):
            python_of(Path(name))


def make_checkpoint(folder, step, parts=("data-00000-of-00001", "state.json")):
    folder.mkdir(parents=True, exist_ok=True)
    for part in (*parts, "index"):
        (folder / f"model.ckpt-{step}.{part}").write_text(f"{step} {part}")


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_snapshot_has_whole_checkpoints_and_nothing_half_written(tmp_path):
    output = tmp_path / "run"
    make_checkpoint(output / "checkpoints", 10)
    make_checkpoint(output / "seed-2/checkpoints", 7)
    # A checkpoint being removed, a checkpoint being written, a file being written, and a file that is appended to.
    (output / "checkpoints/model.ckpt-5.data-00000-of-00001").touch()
    make_checkpoint(output / "checkpoints/.unfinished", 20)
    (output / ".run.json.unfinished").touch()
    (output / "metrics.jsonl").write_text("{}\n")
    without, whole = tmp_path / "snapshot/without_indexes", tmp_path / "snapshot/whole"
    assert run_snapshot.snapshot(output, tmp_path / "snapshot") == (without, whole)
    data = {
        *("checkpoints/model.ckpt-10.data-00000-of-00001", "checkpoints/model.ckpt-10.state.json", "metrics.jsonl"),
        *("seed-2/checkpoints/model.ckpt-7.data-00000-of-00001", "seed-2/checkpoints/model.ckpt-7.state.json"),
    }
    assert files(without) == data
    assert files(whole) == {*data, "checkpoints/model.ckpt-10.index", "seed-2/checkpoints/model.ckpt-7.index"}
    # A file in the snapshot does not change when the original grows.
    with (output / "metrics.jsonl").open("a") as metrics:
        metrics.write("more")
    assert (whole / "metrics.jsonl").read_text() == "{}\n"


def test_a_checkpoint_that_is_removed_while_it_is_linked_is_left_out(tmp_path, monkeypatch):
    checkpoints = tmp_path / "run/checkpoints"
    make_checkpoint(checkpoints, 5)
    make_checkpoint(checkpoints, 6)
    link = run_snapshot._link

    def link_and_remove(path, new):
        link(path, new)
        if path.name == "model.ckpt-5.index":
            for part in ("index", "state.json", "data-00000-of-00001"):
                (checkpoints / f"model.ckpt-5.{part}").unlink()

    monkeypatch.setattr(run_snapshot, "_link", link_and_remove)
    _, whole = run_snapshot.snapshot(tmp_path / "run", tmp_path / "snapshot")
    kept = ("data-00000-of-00001", "state.json", "index")
    assert files(whole) == {f"checkpoints/model.ckpt-6.{part}" for part in kept}


def test_a_file_that_changes_twice_in_a_second_is_copied_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_STAND_IN", str(tmp_path))
    from tests.deploy.tpu import tpu_stand_in

    def storage(*words, shown=True):
        assert words[0] == "rsync"
        source, target = Path(words[-2]), Path(words[-1])
        return tpu_stand_in.rsync(source, target, [str(source), str(target)]) == 0, ""

    (tmp_path / "script.json").write_text("{}")
    monkeypatch.setattr(bucket_sync, "_storage", storage)
    (tmp_path / "run").mkdir()
    sync = bucket_sync.OutputSync(tmp_path / "run", str(tmp_path / "bucket"), tmp_path / "snapshot")
    for number in range(5):
        (tmp_path / "run/best.json").write_text(str(number))
        assert sync.upload()
        assert (tmp_path / "bucket/best.json").read_text() == str(number)


def test_an_index_is_uploaded_after_the_files_it_refers_to(tmp_path, monkeypatch):
    """Check after each file of a transfer that the bucket contains a run that can be resumed."""
    output, place = tmp_path / "run", tmp_path / "bucket"
    checkpoints_seen = []

    def storage(*words, shown=True):
        if words[0] == "ls":
            return True, "\n".join(f"{place}/{name}" for name in files(place))
        if words[0] == "rm":
            for path in words[1:]:
                Path(path).unlink()
                check()
            return True, ""
        source, target = Path(words[-2]), Path(words[-1])
        for name in sorted(files(source), reverse=True):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target / name)
            check()
        return True, ""

    def check():
        there = files(place)
        whole = [int(name.split("-")[1].split(".")[0]) for name in there if name.endswith(".index")]
        if whole:
            parts = ("data-00000-of-00001", "state.json")
            assert there >= {f"model.ckpt-{max(whole)}.{part}" for part in parts}
            assert json.loads((place / "metrics.jsonl").read_text())["step"] >= max(whole)
        checkpoints_seen.append(max(whole, default=0))

    monkeypatch.setattr(bucket_sync, "_storage", storage)
    sync = bucket_sync.OutputSync(output, str(place), tmp_path / "snapshot")
    make_checkpoint(output, 1)
    for step in (2, 3):
        make_checkpoint(output, step)
        (output / "metrics.jsonl").write_text(json.dumps({"step": step}))
        (output / f"model.ckpt-{step - 1}.index").unlink()
        assert sync.upload()
    # After the first checkpoint has arrived, there is always one to resume from.
    assert set(checkpoints_seen[checkpoints_seen.index(2) :]) == {2, 3}
    assert files(place) == {
        "metrics.jsonl",
        *(f"model.ckpt-3.{p}" for p in ("index", "data-00000-of-00001", "state.json")),
    }


def on_host(tmp_path, monkeypatch, program, **changed):
    """Return a stand-in of the cloud without an output, and a job's directory with a program in place of beambert."""
    cloud = Cloud(tmp_path, tmp_path / "wheel")
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "job"
    (folder / "env/bin").mkdir(parents=True)
    (folder / "env/bin/beambert").write_text(f"#!{sys.executable}\n{program}")
    (folder / "env/bin/beambert").chmod(0o755)
    job = job_of(pretrain("--data=gs://b/d", "--output=gs://b/r"))
    content = job_content(job, sync_seconds=0.2) | {"environment": {"OWN": "variable"}} | changed
    cloud.bucket("gs://b/d").mkdir(parents=True)
    (cloud.bucket("gs://b/d") / "dataset.json").write_text("{}")
    return cloud, worker.JobFolder(folder, content)


def in_process(folder, step, *, meanwhile=None):
    """Run a step of the job in a separate process; return its output and exit code."""
    (folder.path / "job.json").write_text(json.dumps(folder.job))
    code = (
        f"import sys; from pathlib import Path; from beambert.deploy.tpu import worker; "
        f"sys.exit(worker.main({step!r}, Path({str(folder.path)!r})))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder.path, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    if meanwhile:
        meanwhile(process)
    return process.communicate(timeout=120)[0], process.returncode


WRITES = """
import os, pathlib, sys, time
output = pathlib.Path("places/b/r")
output.mkdir(parents=True)
(output / "seen").write_text(os.environ["OWN"] + (pathlib.Path("places/b/d/dataset.json").read_text()))
"""


def test_objects_of_others_are_neither_deleted_nor_replaced(tmp_path, monkeypatch):
    """Objects that a snapshot leaves out, and objects that another program writes during the run, stay."""
    trains = """
import pathlib, time
output = pathlib.Path("places/b/r")
for name in ("model.ckpt-2.data-00000-of-00001", "old.json"):
    (output / name).unlink()
(output / "run.json").write_text("{}")
(output / "early.json").write_text("{}")
bucket = pathlib.Path(BUCKET)
while not (bucket / "early.json").exists():
    time.sleep(0.05)
(bucket / "added.txt").write_text("by another program")
(output / "early.json").unlink()
"""
    bucket = tmp_path / "cloud/buckets/b/r"
    _, folder = on_host(tmp_path, monkeypatch, trains.replace("BUCKET", repr(str(bucket))))
    theirs = {".hidden", "notes.unfinished", "build.lock", "model.ckpt-9.state.json", "notes/todo.txt"}
    for name in (*theirs, "model.ckpt-2.data-00000-of-00001", "old.json"):
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text("earlier")
    output, code = in_process(folder, ["work"])
    assert code == 0, output
    assert files(bucket) == {*theirs, "added.txt", "run.json"}


def test_an_output_that_the_command_refuses_is_not_uploaded(tmp_path, monkeypatch):
    cloud, folder = on_host(tmp_path, monkeypatch, "import sys, time; time.sleep(1); sys.exit(1)")
    bucket = cloud.bucket("gs://b/r")
    bucket.mkdir(parents=True)
    (bucket / "thesis.tex").write_text("text")
    _, code = in_process(folder, ["work"])
    assert code == 1
    assert files(bucket) == {"thesis.tex"}
    calls = [json.loads(line) for line in (cloud.state / "calls.jsonl").read_text().splitlines()]
    assert [call for call in calls if call[:2] == ["storage", "rsync"] and call[-2].startswith("gs://")] == []


def test_a_failed_deletion_is_repeated_by_the_next_upload(tmp_path, monkeypatch):
    cloud, _ = on_host(tmp_path, monkeypatch, "")
    output, bucket = tmp_path / "run", cloud.bucket("gs://b/r")
    sync = bucket_sync.OutputSync(output, "gs://b/r", tmp_path / "snapshot")
    make_checkpoint(output, 1)
    assert sync.upload()
    shutil.rmtree(output)
    make_checkpoint(output, 2)
    # The new checkpoint is copied, then the list of objects fails.
    cloud.plan(storage_fails=["", "", "HTTPError 503"])
    assert not sync.upload()
    assert (bucket / "model.ckpt-1.index").exists()
    # Another program deleted one of the objects.
    (bucket / "model.ckpt-1.state.json").unlink()
    assert sync.upload()
    assert files(bucket) == files(output)


def test_the_metadata_server_gives_the_number_of_the_host(tmp_path, monkeypatch):
    _, folder = on_host(tmp_path, monkeypatch, WRITES, hosts=4, slice_id=2)
    monkeypatch.setenv("GCE_METADATA_HOST", f"{os.environ['TPU_METADATA']}/3")
    assert worker.host(folder.job) == worker.Host(2, 3)
    assert not worker.host(folder.job).is_chief
    # In GKE, environment variables contain both numbers.
    monkeypatch.setenv("TPU_WORKER_ID", "0")
    assert not worker.host(folder.job).is_chief
    monkeypatch.setenv("MEGASCALE_SLICE_ID", "0")
    assert worker.host(folder.job).is_chief


@pytest.mark.parametrize("number", [0, 1])
def test_a_pod_runs_the_job_and_only_the_chief_writes_to_the_bucket(tmp_path, monkeypatch, number):
    cloud, folder = on_host(tmp_path, monkeypatch, WRITES, hosts=2)
    monkeypatch.setenv("TPU_WORKER_ID", str(number))
    monkeypatch.setenv("PATH", f"{folder.environment}/bin:{os.environ['PATH']}")
    output, code = in_process(folder, ["pod", str(folder.path / "job.json")])
    assert code == 0, output
    place = cloud.bucket("gs://b/r/seen")
    assert place.exists() == (number == 0)
    assert (folder.path / "places/b/r/seen").read_text() == "variable{}"


def test_a_command_that_waits_for_a_lost_host_is_killed_and_its_checkpoint_arrives(tmp_path, monkeypatch):
    hangs = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WRITES + "time.sleep(600)\n"
    cloud, folder = on_host(tmp_path, monkeypatch, hangs, stop_seconds=1.0, sync_seconds=600)

    def stop(process):
        until(lambda: (folder.path / "places/b/r/seen").exists())
        process.terminate()

    _, code = in_process(folder, ["work"], meanwhile=stop)
    assert code == 128 + 9
    assert folder.exit_code.read_text() == "137"
    assert cloud.bucket("gs://b/r/seen").exists()


def test_a_stop_before_the_start_prevents_the_run(tmp_path, monkeypatch):
    """Check a connection that is lost before the start, and a start that arrives after the stop."""
    _, folder = on_host(tmp_path, monkeypatch, WRITES)
    shutil.copy(ROOT / "deploy/tpu/worker.py", folder.path / worker.SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for step in ("stop", "start"):
        assert in_process(folder, [step])[1] == 0
    assert in_process(folder, ["follow", "0"]) == ("end\t143\n", 0)
    assert not (folder.path / "places").exists()


def test_the_tpu_variables_are_those_of_the_backend(tmp_path):
    library = tmp_path / "env/lib/python3.11/site-packages/libtpu/libtpu.so"
    for backend, names in (("jax", {"JAX_PLATFORMS"}), ("tensorflow", {"PJRT_DEVICE", "TF_XLA_FLAGS"})):
        folder = worker.JobFolder(tmp_path, {"backend": backend})
        library.unlink(missing_ok=True)
        assert worker._tpu_variables(folder) == {}
        library.parent.mkdir(parents=True, exist_ok=True)
        library.touch()
        assert names <= worker._tpu_variables(folder).keys()


def test_the_locks_have_the_packages_of_their_backend():
    packages = {
        backend: set(re.findall(r"^([a-z0-9-]+)==", (Path(worker.__file__).parent / lock).read_text(), re.MULTILINE))
        for backend, lock in REQUIREMENTS.items()
    }
    assert {"jax", "jaxlib", "libtpu", "keras", "requests"} <= packages["jax"]
    assert not {"tensorflow", "tensorflow-tpu", "apache-beam"} & packages["jax"]
    assert {"tensorflow-tpu", "libtpu"} <= packages["tensorflow"]
