"""Tests of tables: files from other writers of these formats are read back, and invalid files are named."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TRAIN
from beambert.trainers.finetuning.tasks.table_files import SUFFIXES, read_split, read_table
from tests.conftest import ROOT

# All characters that UTF-8 can encode.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MARKS = st.text('"\t\n\r,; ab', max_size=8)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message(path: Path) -> str:
    with pytest.raises(TaskDataError) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ROWS = st.lists(st.tuples(TEXT | MARKS, TEXT | MARKS), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, ends=st.sampled_from(["\n", "\r\n"]), mark=st.booleans(), delimiter=st.sampled_from(",;\t"))
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, rows, ends, mark, delimiter):
    path = tmp_path_factory.mktemp("csv") / "train.csv"
    with path.open("w", newline="", encoding="utf-8-sig" if mark else "utf-8") as stream:
        # Before Python 3.13, a lone carriage return is not quoted if lines end differently.
        quoting = csv.QUOTE_ALL if any("\r" in cell for row in rows for cell in row) else csv.QUOTE_MINIMAL
        csv.writer(stream, delimiter=delimiter, lineterminator=ends, quoting=quoting).writerows(
            [("text", "label"), *rows]
        )
    table = read_table(path)
    assert table.columns == {"text": [row[0] for row in rows], "label": [row[1] for row in rows]}


@settings(max_examples=150, deadline=None)
@given(rows=ROWS)
def test_quoted_tsv_is_read_back(tmp_path_factory, rows):
    # The quotation marks of the last row show that the file is quoted. Every field is quoted, as with csv.QUOTE_ALL.
    rows = [*rows, ('a "quoted" word', "1")]
    path = tmp_path_factory.mktemp("tsv") / "train.tsv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL).writerows([("text", "label"), *rows])
    assert read_table(path).columns == {"text": [row[0] for row in rows], "label": [row[1] for row in rows]}


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(TEXT, TEXT | st.integers() | st.booleans() | st.lists(TEXT)), min_size=1, max_size=6))
def test_jsonl_and_parquet_are_read_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    written(
        folder / "train.jsonl",
        "".join(json.dumps({"text": a, "label": b}, ensure_ascii=False) + "\n" for a, b in rows),
    )
    read = read_table(folder / "train.jsonl")
    assert read.columns == {"text": [row[0] for row in rows], "label": [row[1] for row in rows]}
    columns = {"text": [row[0] for row in rows], "label": [[str(row[1])] for row in rows]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "dev.parquet")
    assert read_table(folder / "dev.parquet").columns == columns


def test_rows_are_named_by_number_and_line(tmp_path):
    table = read_table(written(tmp_path / "dev.csv", 'text,label\n"two\nlines",0\n\nlast,1\n'))
    assert [table.where(row) for row in range(2)] == ["dev.csv, row 1 (line 2)", "dev.csv, row 2 (line 5)"]
    table = read_table(written(tmp_path / "dev.jsonl", '{"text": "a"}\n\n{"text": "b", "label": 1}\r\n'))
    assert [table.where(row) for row in range(2)] == ["dev.jsonl, row 1 (line 1)", "dev.jsonl, row 2 (line 3)"]
    assert table.columns == {"text": ["a", "b"], "label": [None, 1]}
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "dev.parquet")
    assert read_table(tmp_path / "dev.parquet").where(0) == "dev.parquet, row 1"


def test_quotation_marks_in_tsv_that_are_text_stay(tmp_path):
    path = written(tmp_path / "t.tsv", 'text\tpair\n"Yes," he said.\tHe said "no"\n"Hi"\t"\n')
    assert read_table(path).columns == {"text": ['"Yes," he said.', '"Hi"'], "pair": ['He said "no"', '"']}
    # These two fields look like one quoted field that contains a tab.
    path = written(tmp_path / "u.tsv", 'text\tpair\n"Yes\tno"\n')
    assert read_table(path).columns == {"text": ['"Yes'], "pair": ['no"']}


def test_quotation_marks_of_tsv_that_open_and_close_in_different_rows_are_text(tmp_path):
    rows = [
        ['"I went home and slept.', "pos"],
        ["The food was bad.", "neg"],
        ['Then I woke up."', "pos"],
        ["Fine.", "neg"],
    ]
    content = "".join("\t".join(row) + "\n" for row in [["text", "label"], *rows])
    table = read_table(written(tmp_path / "train.tsv", content))
    assert list(zip(table.columns["text"], table.columns["label"], strict=True)) == [tuple(row) for row in rows]
    assert table.lines == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        # Without quoting, lines have other numbers of fields than the header.
        ('text\tlabel\n"two\nlines"\tpos\n', {"text": ["two\nlines"], "label": ["pos"]}),
        ('text\tlabel\n"a\tb"\tpos\n', {"text": ["a\tb"], "label": ["pos"]}),
        # Every field is quoted, also those of the header.
        ('"text"\t"label"\n"a\tb\nc"\t"pos"\n', {"text": ["a\tb\nc"], "label": ["pos"]}),
        # Every line of a single column has one field, with and without quoting.
        ('text\n"two\nlines"\nlast\n', {"text": ["two\nlines", "last"]}),
    ],
)
def test_quoted_tabs_and_line_ends_of_tsv_are_part_of_the_field(tmp_path, content, columns):
    assert read_table(written(tmp_path / "train.tsv", content)).columns == columns


def test_real_tsv_of_sst2(shared_data):
    table = read_table(shared_data / "glue" / "SST-2" / "dev.tsv")
    lines = (shared_data / "glue" / "SST-2" / "dev.tsv").read_text(encoding="utf-8").split("\n")
    assert len(table) == 872
    assert [f"{a}\t{b}" for a, b in zip(*table.columns.values(), strict=True)] == lines[1:873]


def test_unnamed_columns_are_left_out_and_names_trimmed(tmp_path):
    table = read_table(written(tmp_path / "train.csv", ", text ,label,,\n0,a,x,,\n1,b,y,,\n"))
    assert table.columns == {"text": ["a", "b"], "label": ["x", "y"]}


def test_a_field_may_be_long(tmp_path):
    long = "word " * 100_000
    assert read_table(written(tmp_path / "train.csv", f'text,label\n"{long}",0\n')).columns["text"] == [long]


def test_lone_surrogates_become_question_marks(tmp_path):
    table = read_table(written(tmp_path / "train.jsonl", '{"text": "a \\ud800 b \\u00e9"}\n'))
    assert table.texts("text", "") == ["a ? b é"]


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("train.csv", "", ["train.csv has no rows"]),
        ("train.csv", "text,label\n\n", ["train.csv has no rows"]),
        ("train.jsonl", "\n \n", ["train.jsonl has no rows"]),
        ("train.jsonl", "{}\n", ["train.jsonl has no rows"]),
        (
            "train.csv",
            "text,label\na,0\nb, and c,1\n",
            ["train.csv, row 2 (line 3): 3 fields", "header has 2", "quote"],
        ),
        ("train.csv", 'text,label\na,0\n"b,1\nc,0\n', ["train.csv, row 2 (line 3)", "quotation mark", "close"]),
        ("train.csv", 'text,label\n"a" b,0\n', ["train.csv, row 1 (line 2)", "quotation mark"]),
        ("train.tsv", 'text\tlabel\nhe said "a\tb" c\t1\n', ["train.tsv, row 1 (line 2): 3 fields", "tab"]),
        ("train.csv", "text,label,text\na,b,c\n", ["two columns 'text'"]),
        ("train.csv", b"text,label\ncaf\xe9,1\n", ["train.csv, line 2", "0xe9", "iconv"]),
        ("train.csv", "text,label\n".encode("utf-16"), ["is UTF-16", "iconv -f UTF-16"]),
        ("train.jsonl", '{"text": "a"}\n{"text": }\n', ["train.jsonl, row 2 (line 2): invalid JSON"]),
        ("train.jsonl", "[" * 100_000, ["train.jsonl, row 1 (line 1): invalid JSON"]),
        ("train.jsonl", '{"n": ' + "1" * 10_000 + "}", ["train.jsonl, row 1 (line 1): invalid JSON"]),
        ("train.jsonl", '["a"]\n', ["train.jsonl, row 1 (line 1): not an object"]),
        ("train.parquet", "PAR1 no", ["train.parquet is not a valid Parquet file"]),
        ("train.xlsx", "", ["unknown suffix of", "train.xlsx: use one of .csv, .tsv, .jsonl, .parquet"]),
    ],
)
def test_invalid_file_is_named(tmp_path, name, content, parts):
    found = message(written(tmp_path / name, content))
    assert [part for part in parts if part not in found] == [], found


def test_a_parquet_file_that_was_cut_is_named(tmp_path):
    path = tmp_path / "train.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 1000}), path)
    written(path, path.read_bytes()[:-20])
    assert "train.parquet is not a valid Parquet file" in message(path)
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), path)
    assert "has no rows" in message(path)


def test_parquet_columns_that_cannot_be_read_are_named(tmp_path):
    path = tmp_path / "train.parquet"
    texts = pyarrow.array(["a"])
    pyarrow.parquet.write_table(pyarrow.table([texts] * 3, names=["text", "label", "label"]), path)
    assert message(path).endswith("train.parquet has two columns 'label': rename one of them")
    dates = pyarrow.array([2**60], pyarrow.timestamp("us"))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "date": dates}), path)
    assert "train.parquet, column 'date': the values cannot be read (date value out of range): " in message(path)


def test_parquet_without_its_library_says_what_to_install(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "train.parquet")
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\nfrom beambert.trainers.errors import TaskDataError\n"
        "from beambert.trainers.finetuning.tasks.table_files import read_table\n"
        f"try: read_table(Path({str(tmp_path / 'train.parquet')!r}))\nexcept TaskDataError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.endswith("package pyarrow is not installed: pip install 'beambert[data]'\n")


def test_missing_column_error_lists_the_columns_and_the_nearest_name(tmp_path):
    table = read_table(written(tmp_path / "train.csv", "sentense,label\na,0\n"))
    with pytest.raises(TaskDataError) as caught:
        table.cells("sentence", "name it with --text_column")
    assert str(caught.value).endswith(
        "train.csv has no column 'sentence' (columns: 'sentense', 'label'): did you mean 'sentense'? "
        "name it with --text_column"
    )


def test_cell_that_is_not_text_is_named(tmp_path):
    table = read_table(written(tmp_path / "train.jsonl", '{"text": "a"}\n{"text": 3}\n{}\n'))
    with pytest.raises(TaskDataError, match=r"train.jsonl, row 2 \(line 2\): 'text' is 3, not text"):
        table.texts("text", "")


def test_a_split_is_found_by_any_of_its_names(tmp_path):
    written(tmp_path / "validation.tsv", "text\tlabel\na\t1\n")
    written(tmp_path / "validation.txt", "notes")
    assert read_split(tmp_path, DEV).path.name == "validation.tsv"
    with pytest.raises(TaskDataError, match=r"no train file with suffix \.csv.*--do_train"):
        read_split(tmp_path, TRAIN)
    written(tmp_path / "train.xlsx", "")
    with pytest.raises(TaskDataError, match=r"unknown suffix of .*train.xlsx"):
        read_split(tmp_path, TRAIN)
    written(tmp_path / "dev.csv", "text,label\na,1\n")
    with pytest.raises(TaskDataError, match=r"has dev.csv and validation.tsv for the same split: keep one"):
        read_split(tmp_path, DEV)
    assert SUFFIXES == (".csv", ".tsv", ".jsonl", ".parquet")
