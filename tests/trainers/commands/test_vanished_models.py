"""`convert` and `export` end with a one-line error and leave no incomplete model if their output is deleted."""

import shutil

import pytest

from beambert import cli
from beambert.bert_model.checkpoints import hugging_face, native, tf1, writer
from beambert.trainers.commands import export


@pytest.fixture
def model(models):
    return models / "classification"


def one_line(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize("kind", writer.KINDS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_convert(kind, moment, model, tmp_path, monkeypatch, capsys):
    """The parent directory is deleted while the tensors are written."""
    parent = tmp_path / "parent"
    module = hugging_face if kind == "huggingface" else tf1
    write = module.write

    def written(*args):
        if moment == "before":
            shutil.rmtree(parent)
        result = write(*args)
        if moment == "after":
            shutil.rmtree(parent)
        return result

    monkeypatch.setattr(module, "write", written)
    assert cli.main(["convert", str(model), str(parent / "new"), "--to", kind]) == 1
    error = one_line(capsys)
    assert str(parent) in error
    assert not (parent / "new").exists()


@pytest.mark.parametrize("name", [native.VOCAB_FILE_NAME, native.CONFIG_FILE_NAME])
def test_convert_with_a_deleted_file(name, model, tmp_path, monkeypatch, capsys):
    write = tf1.write

    def written(prefix, tensors):
        write(prefix, tensors)
        (prefix.parent / name).unlink()

    monkeypatch.setattr(tf1, "write", written)
    assert cli.main(["convert", str(model), str(tmp_path / "new"), "--to", "tf1"]) == 1
    assert f"{name} was removed while the command ran" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def saved_as(saved_classifier, monkeypatch, change):
    """Let `export` copy a finished SavedModel, and change the copy."""

    def saved(opened, directory, *options):
        shutil.copytree(saved_classifier, directory, dirs_exist_ok=True)
        change(directory)
        return {}

    monkeypatch.setattr(export, "write_saved_model", saved)


def test_export(model, saved_classifier, tmp_path, monkeypatch, capsys):
    parent = tmp_path / "parent"
    saved_as(saved_classifier, monkeypatch, lambda _: shutil.rmtree(parent))
    assert cli.main(["export", str(model), str(parent / "new")]) == 1
    assert "was removed while the command ran; run the same command again" in one_line(capsys)
    assert not parent.exists()


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data-00000-of-00001", "assets/vocab.txt"])
def test_export_with_a_deleted_file(name, model, saved_classifier, tmp_path, monkeypatch, capsys):
    saved_as(saved_classifier, monkeypatch, lambda directory: (directory / name).unlink())
    assert cli.main(["export", str(model), str(tmp_path / "new")]) == 1
    assert f"{name} was removed while the command ran; run the same command again" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []
