"""Test the conversion of rows of another schema to documents, and that its messages are those of the readers."""

import datetime
import decimal
import json
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file
from beambert.pipelines.transforms.documents import CleanDocuments, SegmentSentences
from beambert.pipelines.transforms.rows import RowsToDocuments

NESTED = RowsToDocuments(text="article.body", title="article.title", id="meta.key", language="meta.lang")


class Article(NamedTuple):
    body: str
    title: str


ROW = {"article": {"body": "One.\nTwo.", "title": "T"}, "meta": {"key": 7, "lang": "de"}}


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        beam.Row(article=beam.Row(body="One.\nTwo.", title="T"), meta=beam.Row(key=7, lang="de")),
        {"article": Article("One.\nTwo.", "T"), "meta": {"key": 7, "lang": "de"}},
    ],
    ids=["dictionary", "row", "named tuple"],
)
def test_nested_fields_of_dictionaries_and_rows(row):
    document = Document(paragraphs=["One.", "Two."], title="T", source_id="7", language="de")
    with test_pipeline.TestPipeline() as pipeline:
        documents = pipeline | beam.Create([row]) | NESTED
        assert documents.element_type is Document
        assert_that(documents, equal_to([document]))


@pytest.mark.parametrize(
    ("row", "text", "sentences"),
    [
        ({"text": ["One.", " ", "Two. Three."]}, "text", ["One.", "Two. Three."]),
        ({"text": ("One.", "Two.")}, "text", ["One.", "Two."]),
        ({"parts": [{"text": "One."}, {"text": "Two."}]}, "parts.text", ["One.", "Two."]),
        (beam.Row(a=beam.Row(parts=[beam.Row(text="One.")])), "a.parts.text", ["One."]),
        ({"parts": []}, "parts.text", []),
    ],
)
def test_lists_are_sentences(row, text, sentences):
    (document,) = _convert(RowsToDocuments(text), row)
    assert document.paragraphs == sentences
    assert document.segmented


def test_a_field_whose_name_has_a_dot_comes_first():
    row = {"a.b": "One.", "a": {"b": "Two."}, "c": {"d.e": "Three."}}
    assert _convert(RowsToDocuments("a.b"), row)[0].paragraphs == ["One."]
    assert _convert(RowsToDocuments("c.d.e"), row)[0].paragraphs == ["Three."]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.datetime(2026, 11, 28, 16, 30, tzinfo=datetime.UTC), "2026-11-28T16:30:00+00:00"),
        (Timestamp(1000), "1970-01-01T00:16:40+00:00"),
        (datetime.date(2026, 11, 28), "2026-11-28"),
        ("a string", "a string"),
    ],
)
def test_times_become_text(value, text):
    (document,) = _convert(RowsToDocuments(title="time", id="time"), {"text": "A.", "time": value})
    assert (document.title, document.source_id) == (text, text)


@pytest.mark.parametrize("weight", [2, 0.5, decimal.Decimal("0.5")])
def test_weights(weight):
    assert _convert(RowsToDocuments(weight="a.w"), {"text": "A.", "a": {"w": weight}})[0].weight == weight


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "2", True, None])
def test_an_invalid_weight_is_an_error(weight):
    with pytest.raises(SourceError, match=r"^RowsToDocuments, row .*: field 'w' is missing, or not a number .*weight"):
        _convert(RowsToDocuments(weight="w"), {"text": "A.", "w": weight})


BAD = [
    ({"body": "A."}, "missing_text", "has no field 'text' (fields: body); set the field with {}"),
    ({"text": None}, "null_text", "field 'text' is null; fix the record"),
    ({"text": 3}, "not_text", "field 'text' is a number; fix the record"),
    ({"text": ["A.", None]}, "not_text", "field 'text' is a list that contains null; fix the record"),
    (7, "broken_record", "is a number, not an object; fix the record"),
]


@pytest.mark.parametrize(("row", "reason", "message"), BAD)
def test_a_bad_row_has_the_message_of_a_bad_record(tmp_path, row, reason, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(SourceError) as of_file:
        list(read_file(str(path), ReadOptions("jsonl")))
    with pytest.raises(SourceError) as of_row:
        _convert(RowsToDocuments(), row)
    assert str(of_file.value).endswith(
        f"{message.format('--text_field')}, or skip such records with --on_bad_record skip"
    )
    assert str(of_row.value).startswith("RowsToDocuments, row ")
    assert str(of_row.value).endswith(f"{message.format('text')}, or skip such records with on_bad_record='skip'")
    (document,) = _convert(RowsToDocuments(weight="w", on_bad_record="skip"), row)
    assert document.rejected == reason
    assert document.paragraphs


def test_rejected_rows_pass_through_the_other_transforms():
    with test_pipeline.TestPipeline() as pipeline:
        documents = (
            pipeline
            | beam.Create([ROW, {"article": {}}, {}])
            | RowsToDocuments("article.body", on_bad_record="skip")
            | CleanDocuments()
            | SegmentSentences("en")
            | beam.Map(lambda document: (document.rejected, bool(document.id)))
        )
        assert_that(documents, equal_to([("", True), ("missing_text", False), ("missing_text", False)]))


def test_a_field_that_no_row_has_is_an_error():
    with pytest.raises(SourceError, match=r"no record has the field 'kee' .fields: text.; set the field with id, or"):
        _convert(RowsToDocuments(id="kee"), *[{"text": "A."}] * 100)
    documents = _convert(RowsToDocuments(id="key"), *[{"text": "A."}] * 99, {"text": "A.", "key": 1})
    assert documents[-1].source_id == "1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": ""}, "invalid text '' of RowsToDocuments"),
        ({"title": 3}, "invalid title 3 of RowsToDocuments"),
        ({"weight": None}, "invalid weight None of RowsToDocuments"),
        ({"on_bad_record": "drop"}, "invalid on_bad_record 'drop'"),
    ],
)
def test_invalid_options_are_errors_at_construction(options, message):
    with pytest.raises(SourceError, match=message):
        RowsToDocuments(**options)


def _convert(transform: RowsToDocuments, *elements: Any) -> list[Document]:
    """Return the documents of rows, without a pipeline."""
    read = transform._read
    read.setup()
    return [document for element in elements for document in read.process(element)]
