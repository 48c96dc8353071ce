"""Test two simultaneous commands with the same output: the second ends immediately, or each writes its own file."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import beambert
from pipelines.io.directory_lock import lock_destination, lock_directory
from pipelines.io.output_directory import LOCK_NAME
from tests.conftest import with_slow
from tests.every_output import command_of, tree_of

IN_DIRECTORY = ("build", "corpus", "pretraining-data", "pretrain", "finetune", "seeds", "tune")
BESIDE = ("convert native", "convert tf1", "convert huggingface", "extend-vocab", "export")
REFUSED = (
    r"beambert [a-z-]+: error: {} {} is in use by process {} on \S+ since [^;]+; wait for it, or choose another {}\n"
)


def start(argv: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "beambert", *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(path: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not list(path.parent.glob(path.name)):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def endless(folder: Path, output: Path) -> list[str]:
    """Return the command line of a pretraining run that saves often and ends only when it is stopped."""
    command = command_of("pretrain", folder, output)
    command[command.index("--num_train_steps") + 1] = "1000000"
    return [*command, "--save_checkpoints_steps", "50"]


@pytest.mark.parametrize("command", [*IN_DIRECTORY, *BESIDE, "demo"])
def test_a_held_output_is_refused_in_one_line_and_left_alone(command, outputs, tmp_path, capsys):
    output = tmp_path / "out"
    argv = ["demo", "--output", str(output)] if command == "demo" else command_of(command, outputs, output)
    flag = "DST" if command in BESIDE and command != "extend-vocab" else "--output"
    lock = lock_destination if command in BESIDE else lock_directory
    capsys.readouterr()
    with lock(f"{flag} {output}", output, "another"):
        before = tree_of(tmp_path)
        assert beambert.main(argv) == 1
        said = capsys.readouterr()
        assert re.fullmatch(REFUSED.format(flag, output, os.getpid(), flag), said.err), said.err
        assert said.out == ""
        assert tree_of(tmp_path) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["seeds", "tune"])
def test_a_locked_run_of_seeds_or_tune_ends_the_command(command, outputs, tmp_path, capsys):
    """Check that the locked run is not recorded as a failed run in the table."""
    name = {"seeds": "seed-12345", "tune": "batch4-lr0.0001-epochs1"}[command]
    argv = command_of(command, outputs, tmp_path)
    with lock_directory("--output X", tmp_path / name, "another"):
        assert beambert.main([*argv, *(["--seed", "12345"] if command == "seeds" else [])]) == 1
    assert f"--output {tmp_path / name} is in use by process {os.getpid()} on" in capsys.readouterr().err
    assert not (tmp_path / "runs.json").exists()
    assert not (tmp_path / LOCK_NAME).exists()


def test_reading_a_run_that_is_being_written_needs_no_lock(outputs, tmp_path, capsys):
    folders = [outputs / name for name in ("run", "finetuned", "dataset")]
    with contextlib.ExitStack() as locks:
        for folder in folders:
            locks.enter_context(lock_directory("--output X", folder, "another"))
        before = [tree_of(folder) for folder in folders]
        for argv in (
            command_of("predict", outputs, tmp_path / "predictions.txt"),
            command_of("features", outputs, tmp_path / "features.jsonl"),
            command_of("convert tf1", outputs, tmp_path / "tf1"),
            command_of("export", outputs, tmp_path / "saved"),
            ["fill-mask", str(outputs / "run"), "The river [MASK] ."],
            ["inspect", str(outputs / "dataset")],
        ):
            assert beambert.main(argv) == 0, capsys.readouterr().err
        assert [tree_of(folder) for folder in folders] == before
    assert not [path for folder in (tmp_path, *folders) for path in folder.rglob(LOCK_NAME)]


def test_of_two_trainings_started_at_once_one_continues(outputs, tmp_path):
    command = command_of("pretrain", outputs, tmp_path / "out")
    command[command.index("--num_train_steps") + 1] = "200"
    processes = [start(command) for _ in range(2)]
    said = {process.pid: process.communicate(timeout=300)[1] for process in processes}
    assert sorted(process.returncode for process in processes) == [0, 1], said
    (winner, loser) = sorted(processes, key=lambda process: process.returncode)
    assert re.fullmatch(REFUSED.format("--output", tmp_path / "out", winner.pid, "--output"), said[loser.pid]), said
    # A warning about the small model may be printed, but no error.
    assert "beambert pretrain:" not in said[winner.pid]
    assert json.loads((tmp_path / "out/eval_results.json").read_text())["global_step"] == 200
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".") or path.name == LOCK_NAME]


@pytest.mark.parametrize(
    "number", with_slow([signal.SIGTERM, signal.SIGINT, signal.SIGKILL], [signal.SIGTERM, signal.SIGINT])
)
def test_a_stopped_or_killed_training_does_not_block_the_next(number, outputs, tmp_path, capsys):
    output = tmp_path / "out"
    process = start(endless(outputs, output))
    try:
        wait_for(output / "checkpoints/model.ckpt-*.index", process)
        capsys.readouterr()
        assert beambert.main(command_of("pretrain", outputs, output)) == 1
        assert f"in use by process {process.pid} on" in capsys.readouterr().err
        process.send_signal(number)
        process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    assert (output / LOCK_NAME).exists() == (number == signal.SIGKILL)
    # A file that a killed process was writing.
    (output / ".metrics.jsonl.0123456789abcdef.unfinished").write_text("half")
    command = [*command_of("pretrain", outputs, output), "--do_eval"]
    assert beambert.main(command) == 0, capsys.readouterr().err
    assert json.loads((output / "eval_results.json").read_text())["global_step"] % 50 == 0 or number != signal.SIGKILL
    assert not [path for path in output.rglob("*") if path.name.startswith(".") or path.name == LOCK_NAME]


@pytest.mark.parametrize("command", ["vocab", "predict"])
def test_two_writers_of_one_file_never_mix_their_output(command, outputs, tmp_path):
    """Run two commands that write the same file.

    The second vocabulary replaces the first. The second predictions are refused and kept in a file beside it.
    """
    output = tmp_path / "file.txt"
    processes = [start(command_of(command, outputs, output)) for _ in range(2)]
    said = [process.communicate(timeout=300)[1] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes in ([0, 0], [0, 1]), said
    assert beambert.main(command_of(command, outputs, tmp_path / "alone.txt")) == 0
    assert output.read_bytes() == (tmp_path / "alone.txt").read_bytes()
    for text in said:
        assert not text or re.fullmatch(
            r"beambert .*: error: .* (already exists|was created by another process)[ ;].*\n", text
        ), said
    left = {path.name for path in tmp_path.iterdir()} - {"file.txt", "alone.txt"}
    assert all(any(name in text for text in said) for name in left), left
