"""Test the job on a TPU VM: its command, rejected flags, and the steps on a host."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from beambert import cli
from beambert.deploy.tpu import worker
from beambert.deploy.tpu.job import REQUIREMENTS, job_content, job_of, python_of
from beambert.pipelines.errors import SubmitError
from beambert.trainers.errors import StorageError
from tests.deploy.tpu.tpu_cloud import Cloud, until


def pretrain(*flags):
    return cli.read_command("pretrain", [*flags])


def test_the_command_is_sent_as_it_is_typed():
    argv = ["--data", "gs://b/d128/", "gs://c/d/512", "--output=gs://b/runs/1/", "--init_checkpoint", "gs://b/m.ckpt-1"]
    job = job_of(pretrain(*argv))
    assert job.argv == ["pretrain", *argv, "--backend", "jax"]
    assert (job.output, job.backend) == ("gs://b/runs/1", "jax")


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
        (("--data", "gs://b/d", "--output", "gs://b/"), r"gs://b/ is not a path in a bucket; give gs://BUCKET/NAME"),
        (("--data", "gs://b/d", "--output", "gs://b/../r"), r"has a part that is not a file name, such as \.\."),
        (("--data", "gs://b/d", "--output", "gs://b/d/r"), r"overlap: use a separate"),
        (("--data", "gs://b/d/x", "--output", "gs://b/d"), r"overlap: use a separate"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--tpu_name", "n"), r"--tpu_name does not apply"),
        (("--data", "gs://b/d", "--output", "gs://b/r", "--process_id", "1"), r"--process_id does not apply"),
    ],
)
def test_paths_and_flags_that_cannot_work_on_a_vm_are_one_line(flags, message):
    with pytest.raises((SubmitError, StorageError), match=message) as caught:
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


def on_host(tmp_path, monkeypatch, program, **changed):
    """Return a stand-in of the cloud, and a job's directory with a program in place of beambert."""
    cloud = Cloud(tmp_path, tmp_path / "wheel")
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "job"
    (folder / "env/bin").mkdir(parents=True)
    (folder / "env/bin/beambert").write_text(f"#!{sys.executable}\n{program}")
    (folder / "env/bin/beambert").chmod(0o755)
    job = job_of(pretrain("--data=gs://b/d", "--output=gs://b/r"))
    content = job_content(job) | {"environment": {"OWN": "variable"}} | changed
    return cloud, worker.JobFolder(folder, content)


def in_process(folder, step, *, meanwhile=None):
    """Run a step of the job in a separate process; return its output and exit code."""
    (folder.path / "job.json").write_text(json.dumps(folder.job))
    shutil.copy(worker.__file__, folder.path / worker.SCRIPT)
    # Isolated and without packages, as on a TPU VM.
    command = [sys.executable, "-I", "-S", str(folder.path / worker.SCRIPT), *step]
    process = subprocess.Popen(command, cwd=folder.path, stdout=subprocess.PIPE, text=True)
    if meanwhile:
        meanwhile(process)
    return process.communicate(timeout=120)[0], process.returncode


WRITES = """
import json, os, pathlib, sys, time
pathlib.Path("seen").write_text(json.dumps([os.environ["OWN"], sys.argv[1:]]))
"""


def test_the_metadata_server_gives_the_number_of_the_host(tmp_path, monkeypatch):
    changed = {"hosts": 4, "slices": 3, "slice_id": 2, "coordinator": "host:1", "logs": "gs://b/logs"}
    cloud, folder = on_host(tmp_path, monkeypatch, WRITES, **changed)
    monkeypatch.setenv("GCE_METADATA_HOST", f"{os.environ['TPU_METADATA']}/3")
    assert worker.worker_number(folder.job) == 3
    folder.log.write_text("step 1")
    output, code = in_process(folder, ["work"])
    assert code == 0, output
    variable, argv = json.loads((folder.path / "seen").read_text())
    assert variable == "variable"
    group = ["--coordinator_address", "host:1", "--num_processes", "12", "--process_id", "11"]
    assert argv == ["pretrain", "--data=gs://b/d", "--output=gs://b/r", "--backend", "jax", *group]
    assert cloud.bucket("gs://b/logs/slice-2-worker-3.log").read_text() == "step 1"


def test_a_command_that_waits_for_a_lost_host_is_killed(tmp_path, monkeypatch):
    hangs = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WRITES + "time.sleep(600)\n"
    _, folder = on_host(tmp_path, monkeypatch, hangs, stop_seconds=1.0)

    def stop(process):
        until((folder.path / "seen").exists)
        process.terminate()

    _, code = in_process(folder, ["work"], meanwhile=stop)
    assert code == 128 + 9
    assert folder.exit_code.read_text() == "137"


def test_a_stop_before_the_start_prevents_the_run(tmp_path, monkeypatch):
    """Check a connection that is lost before the start, and a start that arrives after the stop."""
    _, folder = on_host(tmp_path, monkeypatch, WRITES)
    for step in ("stop", "start"):
        assert in_process(folder, [step])[1] == 0
    assert in_process(folder, ["follow", "0"]) == ("end\t143\n", 0)
    assert not (folder.path / "seen").exists()


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
    assert {"jax", "jaxlib", "libtpu", "keras", "google-cloud-storage", "requests"} <= packages["jax"]
    assert not {"tensorflow", "tensorflow-tpu", "apache-beam"} & packages["jax"]
    assert {"tensorflow-tpu", "libtpu", "google-cloud-storage"} <= packages["tensorflow"]
