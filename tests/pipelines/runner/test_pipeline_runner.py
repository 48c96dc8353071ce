"""Test the embedded engine on Ctrl-C and when a worker is killed."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

import beambert
from pipelines import dataset
from pipelines.errors import DatasetError
from pipelines.runner import pipeline_runner
from tests.conftest import with_slow


@pytest.fixture(scope="module")
def long_input(tmp_path_factory) -> Path:
    """Enough text for the build to be stopped in the middle: 200,000 sentences of invented words."""
    random = Random(1)
    words = ["".join(random.choices("aeiou", k=2) + random.choices("bdklmnrst", k=3)) for _ in range(3000)]
    path = tmp_path_factory.mktemp("long") / "a.jsonl"
    with path.open("w") as file:
        for _ in range(4000):
            text = "\n".join(f"The {' '.join(random.choices(words, k=9))} was." for _ in range(50))
            file.write(json.dumps({"text": text}) + "\n")
    return path


def start(long_input: Path, output: Path, workers: int) -> subprocess.Popen:
    command = f"build --input {long_input} --output {output} --vocab_size 2000 --direct_num_workers {workers}"
    return subprocess.Popen(
        [sys.executable, "-m", "beambert", *command.split()],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # The tests themselves may run in the background, where they and the processes they start ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(pattern: str, folder: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("workers", with_slow([1, 2], [1]))
def test_ctrl_c_is_one_line_and_the_same_command_resumes(long_input, tmp_path, workers):
    process = start(long_input, tmp_path / "out", workers)
    wait_for("out/corpus.json", tmp_path, process)
    # The signal goes to the whole process group, as from a terminal.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line for line in err.splitlines() if " of " not in line] == [
        "beambert build: interrupted; run the same command again to resume"
    ]
    again = start(long_input, tmp_path / "out", 1)
    again.communicate(timeout=120)
    assert again.returncode == 0
    assert not (tmp_path / "out/build.lock").exists()
    assert dataset.load(tmp_path / "out").num_examples("train")


def test_a_killed_worker_is_one_line(long_input, tmp_path):
    process = start(long_input, tmp_path / "out", 2)
    # The first files of the workers of the first pipeline, seconds before its end.
    wait_for("out/unfinished/*/*", tmp_path, process)
    children = subprocess.run(
        ["pgrep", "-s", str(process.pid), "-f", "sdk_worker_main"], capture_output=True, text=True, check=False
    ).stdout.split()
    assert children
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "a worker process was killed (signal 9)" in err
    assert "Traceback" not in err


def test_worker_errors_are_found_in_the_engines_text():
    text = (
        "Traceback ...\nRuntimeError: first\n\nThe above exception was the direct cause ...\n"
        "pipelines.errors.SourceError: a.gz is cut [while running 'Read/ParDo(ReadDocuments)']\n"
    )
    error = pipeline_runner._as_user_error(RuntimeError(text), "out")
    assert (type(error).__name__, str(error)) == ("SourceError", "a.gz is cut")
    full = pipeline_runner._as_user_error(RuntimeError("OSError: [Errno 28] No space [while running 'x']"), "out")
    assert isinstance(full, DatasetError)
    assert "--output out" in str(full)
    fault = RuntimeError("ValueError: operands could not be broadcast [while running 'x']")
    assert pipeline_runner._as_user_error(fault, "out") is fault


def test_a_failed_run_leaves_other_loggers_alone(tmp_path, caplog):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xfa text")
    argv = ["corpus", "--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out"), "--vocab_size", "9"]
    assert beambert.main(argv) == 1
    logging.getLogger("beambert").warning("heard")
    logging.getLogger("mine").warning("heard too")
    assert [record.message for record in caplog.records] == ["heard", "heard too"]
