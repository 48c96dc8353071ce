"""Tests of data commands in a directory whose name is a glob pattern that matches a sibling."""

import json
import shutil
from pathlib import Path

import pytest

from beambert import cli

CORPUS = [
    *("--input", "texts/*.txt", "--vocab_size", "50", "--validation_fraction", "0.2", "--num_partitions", "1"),
    *("--direct_num_workers", "1"),
]
EXAMPLES = ["--max_seq_length", "32", "--max_predictions_per_seq", "5", "--dupe_factor", "2"]


def write_texts(project: Path) -> None:
    texts = project / "texts"
    texts.mkdir(parents=True)
    for number in range(12):
        sentences = [f"The {project.name} cat number {number} sat on mat {row} of the house." for row in range(6)]
        (texts / f"{number}.txt").write_text("\n".join(sentences) + "\n")


def state(project: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(project.rglob("*")) if path.is_file()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A project with texts, a corpus and a dataset."""
    project = tmp_path_factory.mktemp("finished") / "a1"
    write_texts(project)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        assert cli.main(["build", *CORPUS, *EXAMPLES, "--output", "data"]) == 0
    return project


@pytest.fixture
def projects(finished, tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The projects a1, which has a finished corpus and dataset, and a[1], the current directory, which has texts."""
    sibling, project = shutil.copytree(finished, tmp_path / "a1"), tmp_path / "a[1]"
    write_texts(project)
    monkeypatch.chdir(project)
    return sibling, project


def test_commands_read_and_write_only_their_own_project(projects, capsys):
    sibling, project = projects
    before = state(sibling)
    argv = ["build", *CORPUS, *EXAMPLES, "--output", "data"]
    assert cli.main(argv) == 0
    inputs = [file[0] for file in json.loads((project / "data" / "corpus.json").read_text())["files"]]
    assert sorted(inputs) == sorted(str(path) for path in (project / "texts").iterdir())
    names = [path.relative_to(project) for path in sorted(project.rglob("*"))]
    assert names == [path.relative_to(sibling) for path in sorted(sibling.rglob("*"))]
    # A missing shard is built again.
    whole = {path: content for path, (content, _) in state(project).items()}
    next((project / "data" / "shards").iterdir()).unlink()
    assert cli.main(argv) == 0
    assert cli.main(["inspect", "data"]) == 0
    assert "is missing" not in capsys.readouterr().err
    assert state(sibling) == before
    assert {path: content for path, (content, _) in state(project).items()} == whole
