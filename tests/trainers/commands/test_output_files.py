"""Test that `predict` and `features` never replace their inputs, and replace other files only with --overwrite."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest

from beambert import cli
from beambert.trainers.inference import forward
from tests.conftest import ROOT
from tests.forked import Running

TEXTS = "All human beings.\nrights\n"


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(models / "classification", folder / "model")
    (folder / "in.txt").write_text(TEXTS)
    (folder / "link.txt").symlink_to("in.txt")
    (folder / "hard.jsonl").hardlink_to(folder / "in.txt")
    return folder


def predict(folder, output, *flags):
    return ["predict", f"{folder}/model", "--input_file", f"{folder}/in.txt", "--output_file", str(output), *flags]


def features(folder, output, *flags):
    argv = ["features", "--init_checkpoint", f"{folder}/model", "--input_file", f"{folder}/in.txt"]
    return [*argv, "--output_file", str(output), "--max_seq_length", "16", "--format", "jsonl", *flags]


def tree(folder):
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
@pytest.mark.parametrize("command", [predict, features])
def test_an_output_that_is_an_input_is_refused(command, flags, folder, capsys):
    before = tree(folder)
    for name in ("in.txt", "link.txt", "hard.jsonl", "model/../in.txt"):
        assert cli.main(command(folder, folder / name, *flags)) == 1
        error = capsys.readouterr().err
        assert f"is the same file as --input_file {folder}/in.txt" in error
        assert error.count("\n") == 1
    for name in ("vocab.txt", "bert_config.json"):
        assert cli.main(command(folder, folder / "model" / name, *flags)) == 1
        assert "is a file of" in capsys.readouterr().err
    assert tree(folder) == before


@pytest.mark.parametrize("command", [predict, features])
def test_an_existing_file_is_replaced_only_with_overwrite(command, folder, tmp_path, capsys):
    output = tmp_path / "out.txt"
    output.write_text("kept")
    assert cli.main(command(folder, output)) == 1
    assert f"--output_file {output} already exists; use --overwrite" in capsys.readouterr().err
    assert output.read_text() == "kept"
    assert cli.main(command(folder, output, "--overwrite")) == 0
    assert len(output.read_text().splitlines()) >= 2
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.slow
def test_the_output_is_checked_before_tensorflow_is_imported(folder):
    code = (
        "import sys; from beambert import cli\n"
        "codes = [cli.main(sys.argv[1:13]), cli.main(sys.argv[13:])]\n"
        "print(codes, 'tensorflow' in sys.modules)"
    )
    argv = [*features(folder, folder / "in.txt")[:11], "--overwrite", *predict(folder, folder / "in.txt")]
    result = subprocess.run([sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "[1, 1] False\n"
    assert result.stderr.count("same file as --input_file") == 2


def test_a_stream_is_written_directly(folder, tmp_path):
    """Write to /dev/stdout, which is a file that the shell opened in append mode."""
    process = Running(*predict(folder, "/dev/stdout", "--json"))
    assert process.result().returncode == 0
    lines = process.stdout.read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == TEXTS.splitlines()


@pytest.mark.parametrize("command", [predict, features])
def test_a_removed_directory_is_a_one_line_error(command, folder, tmp_path, capsys, monkeypatch):
    output = tmp_path / "gone" / "out.txt"
    output.parent.mkdir()
    padded = forward.padded

    def removed(*args):
        shutil.rmtree(output.parent, ignore_errors=True)
        return padded(*args)

    monkeypatch.setattr("beambert.trainers.inference.forward.padded", removed)
    assert cli.main(command(folder, output)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"--output_file {output}: {output.parent} was removed while the command ran" in error
    assert not output.exists()
