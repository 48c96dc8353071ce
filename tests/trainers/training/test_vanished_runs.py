"""Test `beambert pretrain` when its run directory or a file in it is deleted, moved or replaced during training."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import beambert
from tests.conftest import ROOT, with_slow
from tests.trainers.checkpoints.saved_checkpoints import after_save
from tests.trainers.pretraining_shards import SMALLEST


@pytest.fixture
def command(tmp_path, data):
    """A function from the numbers of steps and of steps between checkpoints to a command line of `pretrain`."""
    model = tmp_path / "model.json"
    model.write_text(SMALLEST.to_json(), encoding="utf-8")

    def argv(steps, every):
        given = ["--data", str(data), "--output", str(tmp_path / "output"), "--model", str(model)]
        given += ["--num_train_steps", str(steps), "--save_checkpoints_steps", str(every), "--train_batch_size", "4"]
        return ["pretrain", *given, "--max_eval_steps", "2"]

    return argv


def move(output: Path) -> None:
    output.rename(output.with_name("moved"))


def remove(output: Path) -> None:
    # Moved first, since a directory cannot be removed while another process adds files to it.
    move(output)
    shutil.rmtree(output.with_name("moved"))


def replace(output: Path) -> None:
    move(output)
    shutil.copytree(output.with_name("moved"), output, dirs_exist_ok=True)


@pytest.mark.parametrize("happens", with_slow([remove, move, replace], [move, replace]))
def test_the_directory_vanishes(happens, command, tmp_path):
    """Run a real command while files are changed from outside."""
    output = tmp_path / "output"
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", *command(20_000, 100)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    while process.poll() is None and not list(output.glob("checkpoints/*.index")):
        time.sleep(0.01)
    happens(output)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1, error
    last = error.splitlines()[-1]
    assert last.startswith(f"beambert pretrain: error: {output}"), error
    assert "removed, moved or replaced while the command ran" in last
    assert "Traceback" not in error


NAMES = ("vocab.txt", "bert_config.json", "run.json", "beambert.json", "metrics.jsonl", "logs", "model.ckpt-6")
# Slow tests, since most of these files are written in the same way as run.json.
SLOW_NAMES = ("bert_config.json", "beambert.json", "metrics.jsonl", "vocab.txt", "logs")


@pytest.mark.parametrize("name", with_slow(NAMES, SLOW_NAMES))
def test_a_file_vanishes(name, command, tmp_path, monkeypatch, capsys):
    output = tmp_path / "output"

    def happens(checkpoints):
        if name == "logs":
            shutil.rmtree(output / name)
        elif name.startswith("model"):
            (checkpoints / f"{name}.index").unlink()
        else:
            (output / name).unlink()

    after_save(monkeypatch, 6 if name.startswith("model") else 3, happens)
    assert beambert.main(command(6, 3)) == 1
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert name in last
    assert "removed" in last
    assert "Try it" not in captured.out
    # The message says to run the same command again, which then succeeds.
    monkeypatch.undo()
    assert beambert.main(command(6, 3)) == 0
    assert "Try it" in capsys.readouterr().out
    for file in ("vocab.txt", "bert_config.json", "run.json", "beambert.json", "README.md", "eval_results.txt"):
        assert (output / file).is_file()


def test_a_file_is_changed(command, tmp_path, monkeypatch, capsys):
    after_save(monkeypatch, 3, lambda _: (tmp_path / "output" / "vocab.txt").write_text("mine"))
    assert beambert.main(command(6, 3)) == 1
    assert "vocab.txt was changed while the command ran" in capsys.readouterr().err


def test_a_damaged_record_of_the_model_can_be_removed(command, tmp_path, capsys):
    path = tmp_path / "output" / "beambert.json"
    assert beambert.main(command(4, 2)) == 0
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    assert beambert.main(command(4, 2)) == 1
    assert capsys.readouterr().err.endswith(f"; remove {path} and run the same command again\n")
    path.unlink()
    assert beambert.main(command(4, 2)) == 0
    assert path.read_bytes() == whole


WRITTEN = ("checkpoints/model.ckpt-4.data-00000-of-00001", "logs/train/events.out.tfevents.1")


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("name", with_slow(WRITTEN, WRITTEN[1:]))
def test_files_written_into_a_deleted_directory_are_not_foreign(name, foreign, command, tmp_path, monkeypatch, capsys):
    """Run the same command again: it trains in the directory, unless the directory contains a foreign file."""
    output = tmp_path / "output"

    def happens(_):
        shutil.rmtree(output)
        (output / name).parent.mkdir(parents=True)
        (output / name).write_bytes(b"")
        if foreign:
            (output / "thesis.txt").write_text("")

    with monkeypatch.context() as patched:
        after_save(patched, 4, happens)
        assert beambert.main(command(6, 2)) == 1
    capsys.readouterr()
    code = beambert.main(command(6, 2))
    assert code == int(foreign), capsys.readouterr().err
    assert foreign == (output / "thesis.txt").exists()
