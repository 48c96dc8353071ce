"""Tests of the sample of input files that is checked before a job starts."""

import pytest

from pipelines.commands.input_check import _sample, check_inputs
from pipelines.corpus.reading import Input
from pipelines.sources import ReadOptions, SourceError


def inputs(*paths: object) -> list[Input]:
    return [Input(str(path), 1, 0, "*", 1.0) for path in paths]


def test_sample_size_is_bounded_for_any_file_names():
    names = [f"texts/part.{number:05d}" for number in range(20_000)]
    assert len(_sample(inputs(*names))) <= 5_000
    assert len(_sample(inputs(*(f"{name}.bz2" for name in names)))) <= 200
    assert len(_sample(inputs(*(f"gs://bucket/{name}" for name in names)))) <= 30


def test_sample_has_every_suffix():
    names = [*(f"a{number}.txt" for number in range(3_000)), "b.jsonl", "c.zip", "d.txt.gz"]
    assert {"b.jsonl", "c.zip", "d.txt.gz"} <= {each.path for each in _sample(inputs(*names))}


def test_a_sample_without_fields_refuses_nothing(tmp_path, capsys):
    """Warn only, since a file outside the sample may have the field."""
    paths = [tmp_path / f"{number:04d}" for number in range(1_001)]
    for path in paths:
        path.write_text("Some text.")
    paths[-1].write_text('{"body": "Some text."}')
    check_inputs(inputs(*paths), ReadOptions(text_field="body"), ["--text_field body"])
    assert "has no effect on 1,000 of 1,000 input files checked" in capsys.readouterr().err
    with pytest.raises(SourceError, match="no --input file has fields"):
        check_inputs(inputs(*paths[:3]), ReadOptions(text_field="body"), ["--text_field body"])
