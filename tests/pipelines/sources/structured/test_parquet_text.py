"""Tests of Parquet files that are corrupt or not UTF-8: a one-line error, or the row is rejected and counted."""

import random

import pyarrow
import pyarrow.parquet
import pytest

from pipelines.sources import ReadOptions, SourceError, read_file

TEXTS = [b"The first text.", b"caf\xe9 and more", None, b"The last text."]


def _write(path, columns):
    """Write bytes as a text column, which Arrow does not check."""
    arrays = {
        name: pyarrow.array(values, pyarrow.binary()).view(pyarrow.string()) if isinstance(values[0], bytes) else values
        for name, values in columns.items()
    }
    pyarrow.parquet.write_table(pyarrow.table(arrays), path)
    return str(path)


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        pyarrow.list_(pyarrow.string_view()),
        pyarrow.large_list(pyarrow.large_string()),
        pyarrow.list_(pyarrow.string(), 1),
        pyarrow.list_view(pyarrow.string()),
    ],
    ids=str,
)
def test_every_type_of_text(tmp_path, kind):
    is_list = "list" in str(kind)
    values = [["One."], ["Two."]] if is_list else ["One.", "Two."]
    table = pyarrow.table(
        {"text": pyarrow.array(values, kind), "title": pyarrow.array(["A", "B"], pyarrow.string_view())}
    )
    try:
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    except pyarrow.ArrowNotImplementedError:
        pytest.skip(f"pyarrow cannot write {kind}")
    documents = list(read_file(str(tmp_path / "a.parquet"), ReadOptions()))
    assert [document.paragraphs for document in documents] == [["One."], ["Two."]]
    assert [document.title for document in documents] == ["A", "B"]
    assert all(document.segmented == is_list for document in documents)


def test_text_that_is_not_utf8_stops_the_job_with_its_row(tmp_path):
    path = _write(tmp_path / "a.parquet", {"text": TEXTS})
    with pytest.raises(SourceError) as error:
        list(read_file(path, ReadOptions()))
    assert str(error.value) == (
        f"{path}, row 2: byte 0xe9 is not valid utf-8 in a text column; rewrite the column as UTF-8, "
        "or skip such records with --on_bad_record skip"
    )


@pytest.mark.parametrize("name", ["text", "title", "language", "id"])
def test_a_repeated_column_name_is_an_error(tmp_path, name):
    names = ["text", name] if name == "text" else ["text", name, name]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["A text."])] * len(names), names), path)
    with pytest.raises(SourceError) as error:
        list(read_file(str(path), ReadOptions(id_field="id" if name == "id" else "")))
    assert str(error.value) == (
        f"{path}: column {name!r} occurs twice or more (columns: {', '.join(names)}); rename or remove all but one"
    )


def test_text_that_is_not_utf8_is_left_out_and_listed_on_demand(tmp_path):
    path = _write(tmp_path / "a.parquet", {"text": TEXTS, "title": [b"a", b"b", b"c", b"\xff"]})
    documents = list(read_file(path, ReadOptions(on_bad_record="skip")))
    assert [document.rejected for document in documents] == ["", "broken_record", "null_text", "broken_record"]
    assert [document.paragraphs for document in documents] == [
        ["The first text."],
        ["caf\ufffd and more"],
        [],
        ["\ufffd"],
    ]
    assert [document.line for document in documents] == [1, 2, 3, 4]


def test_rows_after_bad_text_in_other_batches_are_numbered_in_their_order(tmp_path):
    path = _write(tmp_path / "a.parquet", {"text": [b"Text %d." % number for number in range(700)] + [b"\xff"] * 2})
    documents = list(read_file(path, ReadOptions(on_bad_record="skip")))
    assert [document.line for document in documents] == list(range(1, 703))
    assert [document.rejected for document in documents[-3:]] == ["", "broken_record", "broken_record"]


def test_damaged_files_end_with_a_line_that_names_them(tmp_path):
    whole = tmp_path / "whole.parquet"
    table = pyarrow.table({"text": [f"Text number {number} of the file." for number in range(300)]})
    pyarrow.parquet.write_table(table, whole)
    data = whole.read_bytes()
    generator = random.Random(1)
    damaged = tmp_path / "damaged.parquet"
    errors = 0
    for _ in range(60):
        cut = bytearray(data)
        if generator.random() < 0.3:
            del cut[generator.randrange(len(cut)) :]
        for place in (generator.randrange(len(cut)) for _ in range(3 if cut else 0)):
            cut[place] = generator.randrange(256)
        damaged.write_bytes(cut)
        message = str(damaged)
        try:
            list(read_file(message, ReadOptions(input_format="parquet")))
        except SourceError as error:
            message = str(error)
            errors += 1
        assert message.startswith(str(damaged))
        assert "\n" not in message
    # Changed bytes of text only change the text.
    assert errors > 50


def test_a_page_with_another_checksum_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["The first text.", "The last text."]})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    assert len(list(read_file(str(path), ReadOptions()))) == 2
    path.write_bytes(path.read_bytes().replace(b"The last text.", b"The lost text."))
    with pytest.raises(SourceError, match=r"a\.parquet"):
        list(read_file(str(path), ReadOptions(on_bad_record="skip")))
