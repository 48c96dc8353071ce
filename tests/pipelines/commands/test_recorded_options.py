"""Tests of the options in a finished output: one that is not recorded has its default, and a wrong one is named."""

import json
import shutil

import pytest

from beambert import cli
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.errors import SourceError
from tests.conftest import SMALL


def group_of(content: dict, path: str) -> tuple[dict, str]:
    """Return the object with the option at a path, and the name of the option."""
    options = content["options"]
    *groups, name = path.split(".")
    for group in groups:
        options = options[group]
    return options, name


@pytest.mark.parametrize(
    ("manifest", "path", "flags", "differs"),
    [
        ("corpus.json", "near_duplicates", ["--drop_near_duplicates"], "near_duplicates: False recorded, True"),
        ("corpus.json", "alphabet_limit", ["--alphabet_limit", "7"], "alphabet_limit: 1000 recorded, 7"),
        ("corpus.json", "cleaning.min_words", ["--min_words", "7"], "cleaning.min_words: 0 recorded, 7"),
        ("dataset.json", "ragged", ["--ragged"], "ragged: False recorded, True"),
    ],
)
def test_a_new_option_has_its_default(built, articles, tmp_path, capsys, manifest, path, flags, differs):
    """Require that a new option with a default does not make finished outputs unusable."""
    output = shutil.copytree(built, tmp_path / "data")
    content = json.loads((output / manifest).read_text())
    options, name = group_of(content, path)
    del options[name]
    (output / manifest).write_text(json.dumps(content))
    command = ["build", "--input", f"{articles}/*.jsonl", "--output", str(output), *SMALL]
    assert cli.main([*command, *flags]) == 1
    error = capsys.readouterr().err
    assert f"with other options ({differs} requested)" in error
    if manifest == "dataset.json":
        assert cli.main(command) == 0


def test_an_option_that_is_not_recorded_is_read_with_its_default(built):
    content = json.loads((built / "corpus.json").read_text())
    recorded = dict(content["options"])
    del content["options"]["alphabet_limit"], content["options"]["read"]
    options = corpus_manifest.parse(json.dumps(content).encode(), "corpus.json").options
    assert options == recorded


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("read.encoding", "utf-16", "options.read: invalid --encoding utf-16: unknown, or not an extension of ASCII"),
        ("cleaning.min_words", -7, "options.cleaning.min_words is -7: expected int >= 0"),
    ],
)
def test_a_wrong_option_is_named(built, tmp_path, path, value, problem):
    content = json.loads((built / "corpus.json").read_text())
    options, name = group_of(content, path)
    options[name] = value
    with pytest.raises(SourceError) as caught:
        corpus_manifest.parse(json.dumps(content).encode(), "corpus.json")
    assert str(caught.value).startswith(f"corpus.json: {problem}")
    assert str(caught.value).endswith("; restore it from a copy, or delete the directory and build the corpus again")
