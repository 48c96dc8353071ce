"""Tests of tab-separated files without quoting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.glue import TsvFile


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("tsv") / "dev.tsv"


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n"), max_size=8).filter(
    lambda text: text.strip() and not text.endswith("\r")
)


@given(st.lists(st.tuples(field, field), min_size=1, max_size=5), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_every_field_is_what_stands_between_the_tabs(path, rows, has_mark, line_end):
    lines = ["text\tlabel", *("\t".join(row) for row in rows)]
    mark = b"\xef\xbb\xbf" if has_mark else b""
    path.write_bytes(mark + "".join(line + line_end for line in lines).encode())
    file = TsvFile(path)
    assert file.columns == ["text", "label"]
    assert [tuple(row.fields) for row in file.rows()] == rows


def test_rows_and_lines_are_counted_apart(path):
    path.write_bytes(b"\r\ntext\tlabel\r\n\na\t1\n \t\n\nb\t2")
    assert [(row.where, row.fields) for row in TsvFile(path).rows()] == [
        ("dev.tsv, row 1 (line 4)", ["a", "1"]),
        ("dev.tsv, row 2 (line 7)", ["b", "2"]),
    ]


def test_a_file_without_header(path):
    path.write_text("one\t1\ntwo\t0\n")
    file = TsvFile(path, ("source", "label"))
    assert file.columns == ["source", "label"]
    assert [row.where for row in file.rows()] == ["dev.tsv, row 1 (line 1)", "dev.tsv, row 2 (line 2)"]


def test_bytes_that_are_not_utf_8_are_named_by_their_line(path):
    path.write_bytes(b"\xef\xbb\xbftext\tlabel\na\t1\ncaf\xe9\t0\n")
    with pytest.raises(TaskDataError, match=r"dev\.tsv, line 3: byte 0xe9 is not UTF-8: convert the file, for Latin-1"):
        TsvFile(path)


def test_unreadable_and_empty_files_are_refused(path):
    with pytest.raises(TaskDataError, match="cannot be read"):
        TsvFile(path.parent)
    path.write_bytes(b"\xef\xbb\xbf\r\n \n")
    with pytest.raises(TaskDataError, match="is empty"):
        TsvFile(path)
