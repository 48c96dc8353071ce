"""`convert` and `export` end with a one-line error and leave no incomplete model if their output is deleted."""

import shutil

import pytest

import beambert
from bert_model.checkpoints import hugging_face, native, tf1, writer
from tests.trainers.random_models import write_model
from trainers.commands import export


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "model")


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
    assert beambert.main(["convert", str(model), str(parent / "new"), "--to", kind]) == 1
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
    assert beambert.main(["convert", str(model), str(tmp_path / "new"), "--to", "tf1"]) == 1
    assert f"{name} was removed while the command ran" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_export(model, tmp_path, monkeypatch, capsys):
    parent = tmp_path / "parent"
    write = export.write_saved_model

    def saved(opened, directory, *options):
        lines = write(opened, directory, *options)
        shutil.rmtree(parent)
        return lines

    monkeypatch.setattr(export, "write_saved_model", saved)
    assert beambert.main(["export", str(model), str(parent / "new")]) == 1
    assert "was removed while the command ran; run the same command again" in one_line(capsys)
    assert not parent.exists()


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data-00000-of-00001", "assets/vocab.txt"])
def test_export_with_a_deleted_file(name, model, tmp_path, monkeypatch, capsys):
    write = export.write_saved_model

    def saved(opened, directory, *options):
        lines = write(opened, directory, *options)
        (directory / name).unlink()
        return lines

    monkeypatch.setattr(export, "write_saved_model", saved)
    assert beambert.main(["export", str(model), str(tmp_path / "new")]) == 1
    assert f"{name} was removed while the command ran; run the same command again" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []
