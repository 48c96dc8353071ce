"""Test README.md and croissant.json of a dataset: they are restored, and no file of another origin is replaced."""

import shutil
from pathlib import Path

import pytest

import beambert
from pipelines import dataset
from pipelines.reporting.dataset_descriptions import FILE_NAMES
from tests.conftest import SMALL

NAMES = sorted(FILE_NAMES)


def build(corpus, output, copies: int = 1) -> int:
    argv = ["pretraining-data", "--input", str(corpus), "--output", str(output), "--dupe_factor", str(copies)]
    return beambert.main(argv)


def descriptions(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in NAMES}


@pytest.fixture(scope="module")
def finished(built, tmp_path_factory) -> Path:
    """A dataset of one copy."""
    output = tmp_path_factory.mktemp("finished") / "data"
    assert build(built, output) == 0
    return output


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "data")


@pytest.mark.parametrize("lost", [False, True], ids=["up to date", "repair"])
def test_missing_files_are_written_again_and_edited_ones_are_kept(built, copied, lost):
    before = descriptions(copied)
    for name in NAMES:
        (copied / name).unlink()
    if lost:
        (copied / dataset.load(copied).shards[0].name).unlink()
    assert build(built, copied) == 0
    assert descriptions(copied) == before
    (copied / "README.md").write_text("# Our data\n", encoding="utf-8")
    (copied / "croissant.json").unlink()
    assert build(built, copied) == 0
    assert descriptions(copied) == {**before, "README.md": b"# Our data\n"}


def test_files_of_a_stopped_job_are_replaced(built, finished, tmp_path):
    """Simulate a job that was killed between the card and the manifest, and then another command."""
    expected = descriptions(finished)
    output = tmp_path / "other"
    assert build(built, output, 2) == 0
    assert descriptions(output) != expected
    (output / "dataset.json").unlink()
    (output / "unfinished").mkdir()
    (output / "unfinished" / "started.json").write_text('{"command": "pretraining-data"}\n')
    assert build(built, output) == 0
    assert descriptions(output) == expected


def test_notes_that_were_added_to_a_stopped_job_are_kept(built, finished, tmp_path):
    output = tmp_path / "other"
    (output / "unfinished").mkdir(parents=True)
    (output / "unfinished" / "started.json").write_text('{"command": "pretraining-data"}\n')
    (output / "README.md").write_text("# Mine\n", encoding="utf-8")
    assert build(built, output) == 0
    assert descriptions(output) == {**descriptions(finished), "README.md": b"# Mine\n"}


@pytest.fixture
def corpus_directory(built, tmp_path) -> Path:
    """A directory that contains only a corpus."""
    output = tmp_path / "corpus"
    shutil.copytree(built, output, ignore=lambda folder, names: {"shards", "dataset.json", "report.html", *NAMES})
    return output


@pytest.mark.parametrize(("name", "command_name"), zip(NAMES, ["pretraining-data", "build"], strict=True))
def test_files_of_another_program_beside_a_corpus_are_kept(
    built, articles, corpus_directory, capsys, name, command_name
):
    (corpus_directory / name).write_text("mine\n", encoding="utf-8")
    before = (corpus_directory / name).stat()
    source = corpus_directory if command_name == "pretraining-data" else f"{articles}/*.jsonl"
    flags = ["--dupe_factor", "3"] if command_name == "pretraining-data" else SMALL
    argv = [command_name, "--input", str(source), "--output", str(corpus_directory), *flags]
    for _ in range(2):
        assert beambert.main(argv) == 0
        assert (corpus_directory / name).read_text(encoding="utf-8") == "mine\n"
        assert (corpus_directory / name).stat().st_mtime_ns == before.st_mtime_ns
    assert f"{corpus_directory}/{name} is kept: beambert did not write it\n" in capsys.readouterr().out
    (other,) = set(NAMES) - {name}
    assert (corpus_directory / other).read_bytes() == (built / other).read_bytes()


def test_a_directory_of_that_name_is_kept(corpus_directory):
    (corpus_directory / "README.md").mkdir()
    (corpus_directory / "README.md" / "mine").write_text("mine\n")
    assert build(corpus_directory, corpus_directory) == 0
    assert (corpus_directory / "README.md" / "mine").read_text() == "mine\n"


@pytest.mark.parametrize("name", NAMES)
def test_files_of_a_deleted_dataset_are_refused(built, corpus_directory, capsys, name):
    """Test that a card, which may be edited, is neither replaced nor left to describe another dataset."""
    shutil.copy(built / name, corpus_directory)
    assert build(corpus_directory, corpus_directory) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"contains {name}, which beambert pretraining-data did not write" in error
    assert (corpus_directory / name).read_bytes() == (built / name).read_bytes()


def test_a_directory_with_a_readme_alone_is_refused(built, tmp_path, capsys):
    (tmp_path / "README.md").write_text("mine\n", encoding="utf-8")
    assert build(built, tmp_path) == 1
    assert "contains README.md, which beambert pretraining-data did not write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
