"""Test `beambert pretrain` when its run directory or a file in it is deleted, moved or replaced during training."""

import shutil
from pathlib import Path

import pytest

from beambert import cli
from beambert.trainers.errors import StorageError
from beambert.trainers.training.run_files import directory_errors
from tests.trainers.checkpoints.saved_checkpoints import after_save
from tests.trainers.pretraining_shards import SMALLEST

pytestmark = pytest.mark.usefixtures("numpy_backend")


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


def replace(output: Path) -> None:
    move(output)
    shutil.copytree(output.with_name("moved"), output)


@pytest.mark.parametrize("happens", [shutil.rmtree, move, replace])
def test_the_directory_vanishes(happens, command, tmp_path, monkeypatch, capsys):
    output = tmp_path / "output"
    after_save(monkeypatch, 3, lambda checkpoints: happens(output))
    assert cli.main(command(6, 3)) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"beambert pretrain: error: {output}")
    assert "removed, moved or replaced while the command ran" in last


def test_a_missing_file_of_a_missing_directory_names_the_directory(tmp_path):
    output, missing = tmp_path / "output", FileNotFoundError("missing file")
    with pytest.raises(StorageError, match="moved or replaced"), directory_errors(output, None, is_chief=False):
        raise missing
    output.mkdir()
    with pytest.raises(FileNotFoundError), directory_errors(output, None, is_chief=False):
        raise missing


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "logs", "model.ckpt-6"])
def test_a_file_vanishes(name, command, tmp_path, monkeypatch, capsys):
    output = tmp_path / "output"

    def happens(checkpoints):
        if name == "logs":
            shutil.rmtree(output / name)
        elif name.startswith("model"):
            (checkpoints / f"{name}.index").unlink()
        else:
            (output / name).unlink()

    with monkeypatch.context() as patched:
        after_save(patched, 6 if name.startswith("model") else 3, happens)
        assert cli.main(command(6, 3)) == 1
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert name in last
    assert "removed" in last
    assert "Try it" not in captured.out
    # The message says to run the same command again, which then succeeds.
    assert cli.main(command(6, 3)) == 0
    assert "Try it" in capsys.readouterr().out
    for file in ("vocab.txt", "bert_config.json", "run.json", "beambert.json", "README.md", "eval_results.txt"):
        assert (output / file).is_file()


def test_a_file_is_changed(command, tmp_path, monkeypatch, capsys):
    after_save(monkeypatch, 3, lambda _: (tmp_path / "output" / "vocab.txt").write_text("mine"))
    assert cli.main(command(6, 3)) == 1
    assert "vocab.txt was changed while the command ran" in capsys.readouterr().err


def test_a_damaged_record_of_the_model_can_be_removed(command, tmp_path, capsys):
    path = tmp_path / "output" / "beambert.json"
    assert cli.main(command(4, 2)) == 0
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    assert cli.main(command(4, 2)) == 1
    assert capsys.readouterr().err.endswith(f"; remove {path} and run the same command again\n")
    path.unlink()
    assert cli.main(command(4, 2)) == 0
    assert path.read_bytes() == whole


@pytest.mark.parametrize("foreign", [False, True])
def test_files_written_into_a_deleted_directory_are_not_foreign(foreign, command, tmp_path, monkeypatch, capsys):
    """Run the same command again: it trains in the directory, unless the directory contains a foreign file."""
    output = tmp_path / "output"

    def happens(_):
        shutil.rmtree(output)
        for name in ("checkpoints/model.ckpt-4.data-00000-of-00001", "logs/train/events.out.tfevents.1"):
            (output / name).parent.mkdir(parents=True)
            (output / name).write_bytes(b"")
        if foreign:
            (output / "thesis.txt").write_text("")

    with monkeypatch.context() as patched:
        after_save(patched, 4, happens)
        assert cli.main(command(6, 2)) == 1
    capsys.readouterr()
    code = cli.main(command(6, 2))
    assert code == int(foreign), capsys.readouterr().err
    assert foreign == (output / "thesis.txt").exists()
