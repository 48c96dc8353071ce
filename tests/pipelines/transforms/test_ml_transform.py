"""Test that `BertTokenize` gives the IDs of the tokenizer, also from an artifact, and rejects a changed vocabulary."""

import apache_beam as beam
import pytest
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.testing.util import assert_that, equal_to

from beambert.pipelines.errors import SourceError
from beambert.pipelines.transforms.ml_transform import BertTokenize
from beambert.tokenizer.tokenizer import Tokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "hat", "the"]
ROWS = [{"text": "The cats, a hat", "pair": "a cat", "n": 1}, {"text": "", "pair": "hats " * 9, "n": 2}]


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    return tmp_path / "vocab.txt"


def as_lists(row):
    return {name: value if isinstance(value, (int, str)) else value.tolist() for name, value in row.items()}


def wanted(vocabulary, columns):
    tokenizer = Tokenizer.load(str(vocabulary))
    names = ("input_ids", "input_mask", "segment_ids")
    encoded = (tokenizer.encode(*(row[name] for name in columns), max_seq_length=12) for row in ROWS)
    return [row | dict(zip(names, values, strict=True)) for row, values in zip(ROWS, encoded, strict=True)]


@pytest.mark.parametrize("columns", [["text"], ["text", "pair"]])
def test_written_and_read_artifacts(vocabulary, tmp_path, columns):
    for transform in (
        lambda: MLTransform(write_artifact_location=str(tmp_path / "artifacts")).with_transform(
            BertTokenize(columns, str(vocabulary), max_seq_length=12)
        ),
        lambda: MLTransform(read_artifact_location=str(tmp_path / "artifacts")),
    ):
        with beam.Pipeline() as pipeline:
            found = pipeline | beam.Create(ROWS) | transform() | beam.Map(as_lists)
            assert_that(found, equal_to(wanted(vocabulary, columns)))


def test_mistakes(vocabulary, tmp_path):
    with pytest.raises(SourceError, match="list of one or two columns"):
        BertTokenize("text", str(vocabulary))
    with pytest.raises(FileNotFoundError):
        BertTokenize(["text"], str(tmp_path / "none.txt"))
    location = str(tmp_path / "artifacts")

    def run(rows, transform):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create(rows) | transform

    write = MLTransform(write_artifact_location=location).with_transform(BertTokenize(["text"], str(vocabulary)))
    with pytest.raises(Exception, match="no text in column text; its columns are title"):
        run([{"title": "x"}], write)
    vocabulary.write_text(vocabulary.read_text() + "more\n")
    with pytest.raises(Exception, match="has changed since the artifact was written"):
        run(ROWS, MLTransform(read_artifact_location=location))
