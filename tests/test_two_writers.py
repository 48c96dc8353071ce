"""Test that a command whose output is being written by another one ends at once, and that readers need no lock.

`make chaos` starts the same command twice.
"""

import contextlib
import os
import re
import shutil

import pytest

from beambert import cli
from beambert.pipelines.io.output_directory import LOCK_NAME, lock_destination, lock_directory
from tests.every_output import command_of, tree_of

IN_DIRECTORY = ("build", "corpus", "pretraining-data", "pretrain", "finetune", "seeds", "tune")
BESIDE = ("convert native", "convert tf1", "convert huggingface", "extend-vocab", "export")
REFUSED = (
    r"beambert [a-z-]+: error: {} {} is in use by process {} on \S+ since [^;]+; wait for it, or choose another {}\n"
)


@pytest.mark.parametrize("command", [*IN_DIRECTORY, *BESIDE, "demo"])
def test_a_held_output_is_refused_in_one_line_and_left_alone(command, outputs, tmp_path, capsys):
    output = tmp_path / "out"
    argv = ["demo", "--output", str(output)] if command == "demo" else command_of(command, outputs, output)
    flag = "DST" if command in BESIDE and command != "extend-vocab" else "--output"
    lock = lock_destination if command in BESIDE else lock_directory
    capsys.readouterr()
    with lock(f"{flag} {output}", output, "another"):
        before = tree_of(tmp_path)
        assert cli.main(argv) == 1
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
        assert cli.main([*argv, *(["--seed", "12345"] if command == "seeds" else [])]) == 1
    assert f"--output {tmp_path / name} is in use by process {os.getpid()} on" in capsys.readouterr().err
    assert not (tmp_path / "runs.json").exists()
    assert not (tmp_path / LOCK_NAME).exists()


def test_reading_a_run_that_is_being_written_needs_no_lock(outputs, tmp_path, capsys):
    made = tmp_path / "made"
    folders = [made / name for name in ("run", "finetuned", "dataset")]
    for folder in folders:
        shutil.copytree(outputs / folder.name, folder)
    shutil.copytree(outputs / "inputs", made / "inputs")
    with contextlib.ExitStack() as locks:
        for folder in folders:
            locks.enter_context(lock_directory("--output X", folder, "another"))
        before = [tree_of(folder) for folder in folders]
        for argv in (
            command_of("predict", made, tmp_path / "predictions.txt"),
            command_of("features", made, tmp_path / "features.jsonl"),
            command_of("convert tf1", made, tmp_path / "tf1"),
            ["fill-mask", str(made / "run"), "The river [MASK] ."],
            ["inspect", str(made / "dataset")],
        ):
            assert cli.main(argv) == 0, capsys.readouterr().err
        assert [tree_of(folder) for folder in folders] == before
    assert not [path for folder in (tmp_path, *folders) for path in folder.rglob(LOCK_NAME)]
