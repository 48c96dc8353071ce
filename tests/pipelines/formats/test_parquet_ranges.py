"""Tests that the ranges of a Parquet file have the documents of the file, and that fields may be nested."""

import itertools
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file

ROWS = [
    {"id": number, "article": {"body": f"Text {number}.\nMore.", "parts": [{"text": f"Part {number}."}] * (number % 3)}}
    for number in range(100)
]


@pytest.fixture(params=["none", "snappy", "zstd"])
def path(tmp_path, request) -> str:
    """A file of 15 row groups, the last of two rows."""
    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(ROWS), path, row_group_size=7, compression=request.param, write_page_checksum=True
    )
    return path


def by_ranges(path: str, options: ReadOptions, edges: list[int]) -> list[list]:
    return [
        list(read_file(path, options, start, stop)) for start, stop in itertools.pairwise([*sorted({0, *edges}), None])
    ]


@pytest.mark.parametrize("field", ["article.body", "article.parts.text"])
def test_ranges_have_the_documents_of_the_file(path, field):
    options = ReadOptions(text_field=field, id_field="id")
    whole = list(read_file(path, options))
    assert [(document.line, document.source_id) for document in whole] == [(n + 1, str(n)) for n in range(100)]
    size = Path(path).stat().st_size
    for edges in ([], [1], [size // 2], [size - 1], list(range(0, size, 97))):
        parts = by_ranges(path, options, edges)
        assert list(itertools.chain(*parts)) == whole
    # Each row group is in one of many ranges.
    assert [len(part) for part in parts if part] == [7] * 14 + [2]


def test_a_nested_text_is_a_text_or_a_list_of_sentences(path):
    bodies = list(read_file(path, ReadOptions(text_field="article.body")))
    assert bodies[3].paragraphs == ["Text 3.", "More."]
    assert not bodies[3].segmented
    parts = list(read_file(path, ReadOptions(text_field="article.parts.text")))
    assert [document.paragraphs for document in parts[:3]] == [[], ["Part 1."], ["Part 2.", "Part 2."]]
    assert all(document.segmented for document in parts)


def test_a_column_whose_name_has_a_dot_is_read_first(tmp_path):
    path = str(tmp_path / "a.parquet")
    rows = [{"a.b": "One.", "a": {"b": "Two.", "c": None}}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert [document.paragraphs for document in read_file(path, ReadOptions(text_field="a.b"))] == [["One."]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_field": "article.bodi"}, r"column 'article.bodi' is missing or not text .*--text_field"),
        ({"text_field": "article.parts"}, r"column 'article.parts' is missing or not text .*--text_field"),
        ({"text_field": "article.body", "id_field": "article.x"}, r"column 'article.x' is missing .*--id_field"),
    ],
)
def test_a_missing_nested_column_is_an_error(path, options, message):
    with pytest.raises(SourceError, match=message):
        list(read_file(path, ReadOptions(**options)))


def test_a_truncated_file_is_an_error_in_each_range(path):
    size = Path(path).stat().st_size // 2
    os.truncate(path, size)
    for start, stop in ((0, size // 2), (size // 2, None)):
        with pytest.raises(SourceError, match=r"a\.parquet is not a complete Parquet file"):
            list(read_file(path, ReadOptions("parquet", text_field="article.body"), start, stop))


def test_a_corrupt_row_group_is_an_error_in_its_range_only(path):
    options = ReadOptions(text_field="article.body")
    group = pyarrow.parquet.read_metadata(path).row_group(9)
    with Path(path).open("r+b") as file:
        file.seek(group.column(1).data_page_offset)
        file.write(b"\xff" * 40)
    cut = group.column(0).data_page_offset
    assert [document.line for document in read_file(path, options, 0, cut)] == list(range(1, 64))
    with pytest.raises(SourceError, match=r"a\.parquet is corrupt"):
        list(read_file(path, options, cut, None))


def test_dates_are_identifiers_and_titles(tmp_path):
    path = str(tmp_path / "a.parquet")
    days = pyarrow.array([1_000_000, None], pyarrow.timestamp("ms", "UTC"))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["One.", "Two."], "title": days, "key": days}), path)
    documents = list(read_file(path, ReadOptions(id_field="key")))
    day = "1970-01-01T00:16:40+00:00"
    assert [(document.title, document.source_id) for document in documents] == [(day, day), ("", "")]
