"""Tests of the same command on a finished build of an older version: it is up to date, or repaired."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from beambert import cli
from beambert.common.renamed_fields import inverse, with_new_names
from beambert.pipelines.io.manifest_schemas import RENAMED_CORPUS_FIELDS, RENAMED_DATASET_FIELDS
from tests.conftest import SMALL


@pytest.fixture
def old_build(built, tmp_path) -> Path:
    """A copy of a build with the manifests and file names of format version 2."""
    output = tmp_path / "data"
    shutil.copytree(built, output)
    corpus = with_new_names(read(output / "corpus.json"), inverse(RENAMED_CORPUS_FIELDS[2]))
    write(output / "corpus.json", corpus)
    manifest = with_new_names(read(output / "dataset.json"), inverse(RENAMED_DATASET_FIELDS[2]))
    manifest["options"]["corpus_sha256"] = hashlib.sha256((output / "corpus.json").read_bytes()).hexdigest()
    for shard in manifest["shards"]:
        name = shard["name"].replace("-copy-", "-duplicate-")
        (output / shard["name"]).rename(output / name)
        shard["name"] = name
    write(output / "dataset.json", manifest)
    return output


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps({**content, "format_version": 2}, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def contents(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_old_build_is_up_to_date(old_build, articles, capsys):
    before = contents(old_build)
    assert any("-duplicate-" in name for name in before)
    assert cli.main(["build", "--input", f"{articles}/*.jsonl", "--output", str(old_build), *SMALL]) == 0
    printed = capsys.readouterr().out
    assert f"Corpus in {old_build} is up to date." in printed
    assert f"Shards in {old_build} are up to date." in printed
    assert contents(old_build) == before
    for command in (
        ["inspect", old_build],
        ["inspect", old_build / "shards/train-duplicate-000-00000-of-00003.tfrecord"],
    ):
        assert cli.main(list(map(str, command))) == 0


def test_missing_shards_are_rebuilt_under_their_old_names(old_build, articles):
    before = contents(old_build)
    for name in ("train-duplicate-001-00002-of-00003", "validation-duplicate-000-00000-of-00001"):
        next(old_build.glob(f"shards/{name}*")).unlink()
    assert cli.main(["build", "--input", f"{articles}/*.jsonl", "--output", str(old_build), *SMALL]) == 0
    assert contents(old_build) == before


def test_options_that_differ_have_their_new_names(old_build, articles, capsys):
    argv = ["build", "--input", f"{articles}/*.jsonl", "--output", str(old_build), *SMALL, "--num_buckets", "4"]
    assert cli.main(argv) == 1
    assert "num_partitions: 3 recorded, 4 requested" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("manifest", "newer", "flags", "differs"),
    [
        (
            "corpus.json",
            [("options", "near_duplicates"), ("options", "read", "document_unit")],
            ["--drop_near_duplicates"],
            "near_duplicates: False recorded, True requested",
        ),
        ("dataset.json", [("options", "ragged")], ["--ragged"], "ragged: False recorded, True requested"),
    ],
)
def test_missing_options_have_their_defaults(built, articles, tmp_path, capsys, manifest, newer, flags, differs):
    output = shutil.copytree(built, tmp_path / "data")
    content = json.loads((output / manifest).read_text())
    for *path, name in newer:
        options = content
        for part in path:
            options = options[part]
        del options[name]
    (output / manifest).write_text(json.dumps(content))
    command = ["build", "--input", f"{articles}/*.jsonl", "--output", str(output), *SMALL]
    assert cli.main([*command, *flags]) == 1
    error = capsys.readouterr().err
    assert differs in error
    assert error.count("recorded") == 1
