"""Tests of JSON, CSV, TSV and Parquet against independent parsers, and of invalid records and corrupt files."""

import csv
import io
import json
import random
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import json_values
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.builds(lambda text, more: {**more, "text": text}, TEXT, st.dictionaries(TEXT, JSON, max_size=3)))


def read(path: Path, content: bytes, **options):
    path.write_bytes(content)
    return list(read_file(str(path), ReadOptions(**options)))


@settings(max_examples=150, deadline=None)
@given(
    records=RECORDS,
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    piece=st.integers(1, 40),
    concatenated=st.booleans(),
)
def test_json_in_chunks_of_any_size_equals_json_loads(records, indent, ascii_only, piece, concatenated):
    def dump(value):
        return json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    text = "\n".join(map(dump, records)) if concatenated else dump(records)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_CHUNK_BYTES", piece)
        documents = read(Path(folder) / "a.json", text.encode(), input_format="json")
    assert [document.paragraphs for document in documents] == [record["text"].splitlines() for record in records]
    assert [document.line for document in documents] == list(range(1, len(records) + 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"text": "a"},\n{"text": "b"}', "line 2: not valid JSON .the array is truncated"),
        (b'[{"text": "a"}\n{"text": "b"}]', "line 2: not valid JSON .a comma or bracket is missing"),
        (b'[{"text": "a"},\n{"text" "b"}]', "line 2: not valid JSON"),
        (b'[{"text": "a"},\n{"text": "b\xff"}]', "line .*byte 0xff is not valid utf-8"),
        (b'[{"text": "a"},\n{"text": null}]', r"item 2 \(line 2\): field 'text' is null; .*--on_bad_record skip"),
        (b'[{"text": "a"},\n7]', r"item 2 \(line 2\) is a number, not an object"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_json_errors_name_the_place(tmp_path, content, message):
    with pytest.raises(SourceError, match=message):
        read(tmp_path / "a.json", content, input_format="json")


def test_a_syntax_error_at_the_start_of_a_large_array_does_not_read_it_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": nonsense}, ' + b'{"text": "a"}, ' * 100_000 + b"{}]")
    monkeypatch.setattr(json_values, "_CHUNK_BYTES", 1000)
    with path.open("rb") as stream, pytest.raises(SourceError, match="line 1: not valid JSON"):
        list(json_values.read_documents(stream, str(path), ReadOptions()))
    with path.open("rb") as stream:
        with pytest.raises(SourceError):
            list(json_values.read_documents(stream, str(path), ReadOptions()))
        assert stream.tell() < 10_000


CELL = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t,;"'), max_size=20)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.tuples(CELL, CELL, CELL), max_size=5), delimiter=st.sampled_from(",;\t"))
def test_csv_is_what_the_csv_module_writes(rows, delimiter):
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows([("id", "text", "title"), *rows])
    data = b"\xef\xbb\xbf" + file.getvalue().encode()
    with tempfile.TemporaryDirectory() as folder:
        documents = read(Path(folder) / "a.csv", data, id_field="id")
    assert [(d.source_id, d.paragraphs, d.title) for d in documents] == [
        (identifier, text.splitlines(), title) for identifier, text, title in rows
    ]


def test_rows_are_named_by_the_line_they_begin_in(tmp_path):
    content = b'text,title\n"Two\nlines.",a\n\nOne line.,b\n"Two\nmore.",c\n'
    assert [document.line for document in read(tmp_path / "a.csv", content)] == [2, 5, 6]


def test_quotes_in_tsv_are_characters_unless_they_enclose_a_field(tmp_path):
    content = b'text\tlabel\n"Yes", he said.\t1\n"A ""quoted"" field"\t0\nAn inch is 1".\t1\n'
    documents = read(tmp_path / "a.tsv", content)
    assert [document.paragraphs for document in documents] == [
        ['"Yes", he said.'],
        ['A "quoted" field'],
        ['An inch is 1".'],
    ]


def test_real_tsv(shared_data):
    path = shared_data / "glue/SST-2/dev.tsv"
    documents = list(read_file(str(path), ReadOptions(text_field="sentence")))
    expected = [line.split("\t")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    assert ["".join(document.paragraphs).strip() for document in documents] == expected
    assert len(documents) == 872


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"body,title\na,b\n",
            r"column 'text' is missing \(columns: 'body', 'title'\); .*--text_field",
        ),
        ("a.csv", b"text,text\na,b\n", "two columns are named 'text'"),
        ("a.csv", b"text,title\na,b,c\n", r"line 2 has 3 fields, but the header has 2; .*--on_bad_record skip"),
        ("a.csv", b'text,title\n"a"b,c\n', "line 2: a misplaced quote .*--on_bad_record skip"),
        ("a.csv", b"text,title\r\na\rb,c\r\n", r"line 2: a carriage return \(CR\) outside quotes; .*--on_bad_record"),
        ("a.csv", b"text,title\ra,b\r", r"lines end with CR instead of LF; .* tr '\\r' '\\n' "),
        ("a.csv", b'"text","title"\r"a","b"\r', r"lines end with CR instead of LF"),
        ("a.tsv", b"text\ttitle\ra\tb\r", r"lines end with CR instead of LF"),
        ("a.csv", b'text,title\na,b\n"never closed,c\na,b\n', "line 3: a quote in this row is never closed"),
        ("a.tsv", b"text\ttitle\na\n", r"line 2 has 1 field, but the header has 2"),
        ("a.csv", b"Just, a text\nwith commas, of a poem\n", "--input_format text"),
    ],
)
def test_table_errors_name_the_place(tmp_path, name, content, message):
    with pytest.raises(SourceError, match=message):
        read(tmp_path / name, content)


BAD = {
    "null_text": ('{"text": null}', "field 'text' is null"),
    "missing_text": ('{"body": "a", "url": "u"}', r"has no field 'text' \(fields: body, url\)"),
    "not_text": ('{"text": 3.5}', "field 'text' is a number"),
    "broken_record": ('{"text": "cut', "not valid JSON"),
}
MORE_BAD = [
    ("not_text", '{"text": true}', "is a boolean"),
    ("not_text", '{"text": {"a": 1}}', "is an object"),
    ("not_text", '{"text": ["a", null]}', "is a list that contains null"),
    ("broken_record", "[1]", "is a list, not an object"),
    ("broken_record", "null", "is null, not an object"),
    ("broken_record", "9" * 5000, "not valid JSON"),
]


@pytest.mark.parametrize(("reason", "line", "problem"), [(key, *value) for key, value in BAD.items()] + MORE_BAD)
@pytest.mark.parametrize("kind", ["plain", "wikiextractor"])
def test_a_bad_line_stops_the_job_or_is_left_out_with_its_place(tmp_path, reason, line, problem, kind):
    good = '{"id": "1", "url": "u", "title": "T", "text": "Good."}' if kind == "wikiextractor" else '{"text": "Good."}'
    content = f"{good}\n\n{line}\n{good}\n".encode()
    path = tmp_path / "a.jsonl"
    with pytest.raises(SourceError, match=rf"a\.jsonl, line 3.*{problem}.*--on_bad_record skip"):
        read(path, content)
    documents = read(path, content, on_bad_record="skip")
    assert [document.rejected for document in documents] == ["", reason, ""]
    assert [document.line for document in documents] == [1, 3, 4]
    assert documents[1].paragraphs == [line[:200]]


def test_a_line_in_another_encoding_is_a_bad_record(tmp_path):
    content = '{"text": "Gut."}\n{"text": "M\u00e4dchen."}\n'.encode("latin-1")
    with pytest.raises(SourceError, match=r"line 2: byte 0xe4 is not valid utf-8; .*--encoding latin-1"):
        read(tmp_path / "a.jsonl", content)
    documents = read(tmp_path / "a.jsonl", content, on_bad_record="skip")
    assert [document.rejected for document in documents] == ["", "broken_record"]


@pytest.mark.parametrize(
    ("broken", "lines", "header"),
    [
        ('"He said "yes" and\nleft early\n\nfor ""home""",x', 4, "text,title"),
        ('"a\nb"c"d\ne\nf"', 4, "text"),
        ('x,"a "b"\nc, d, e"', 2, "title,text"),
        # The record may have ended: its quotes are even, or the next quote or row begins a record.
        ('"a "b and', 1, "text"),
        ('"a "b" and', 1, "text"),
        ('"a "b" and\n"next","row"', 1, "text,title"),
        ('"a "b" and\nnext,"row"', 1, "text,title"),
        ('"a "b" and\nnext,row\n5",row', 1, "text,title"),
        ('"a "b" and' + "\nnext" * 100, 1, "text"),
    ],
)
def test_the_rest_of_a_broken_record_of_csv_is_no_document(tmp_path, broken, lines, header):
    after = ["the,end", "of,it", '"quoted, text",it'] if "," in header else ["the", "end", '"quoted, text"']
    content = "\n".join([header, *after[:1], broken, *after]) + "\n"
    documents = read(tmp_path / "a.csv", content.encode(), on_bad_record="skip")
    raw = broken.split("\n")
    expected = [(2, ""), (3, "broken_record")]
    expected += [(3 + number, "") for number in range(lines, len(raw) + 3) if (raw + after)[number]]
    assert [(document.line, document.rejected) for document in documents] == expected
    assert documents[1].paragraphs == ["\n".join(raw[:lines])]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_row_in_another_encoding_is_a_bad_record(tmp_path, name):
    content = 'text\nGut.\nM\u00e4dchen.\n"Gut, auch"\n'.encode("latin-1")
    with pytest.raises(SourceError, match=r"line 3: byte 0xe4 is not valid utf-8; .*--encoding latin-1"):
        read(tmp_path / name, content)
    documents = read(tmp_path / name, content, on_bad_record="skip")
    assert [document.rejected for document in documents] == ["", "broken_record", ""]
    assert documents[1].paragraphs == ["M\ufffddchen."]
    assert [d.paragraphs for d in read(tmp_path / name, content, encoding="latin-1")][1] == ["M\u00e4dchen."]
    with pytest.raises(SourceError, match=r"line 1: byte 0xe4 is not valid utf-8; .*correct --encoding"):
        read(tmp_path / name, content.replace(b"text", b"text\xe4"), on_bad_record="skip")


def test_identifiers_are_those_of_the_field(tmp_path):
    lines = [{"key": "a", "text": "One."}, {"key": 7, "text": "Two."}, {"text": "Three."}, {"key": None, "text": None}]
    content = "\n".join(map(json.dumps, lines)).encode()
    documents = read(tmp_path / "a.jsonl", content, id_field="key", on_bad_record="skip")
    assert [document.source_id for document in documents] == ["a", "7", "", ""]
    with pytest.raises(SourceError, match=r"no record has the field 'kee' \(fields: key, text\); .*--id_field"):
        read(tmp_path / "a.jsonl", content, id_field="kee", on_bad_record="skip")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_fields_may_be_nested(tmp_path, name):
    record = {
        "article": {"body": "One.", "a.b": "Two.", "parts": [{"text": "Three."}, {"text": "Four."}]},
        "article.parts": 5,
        "meta": {"key": 7, "lang": "de"},
    }
    content = (json.dumps([record]) if name == "a.json" else json.dumps(record)).encode()
    options = {"id_field": "meta.key", "language_field": "meta.lang"}
    for field, paragraphs in (
        ("article.body", ["One."]),
        ("article.a.b", ["Two."]),
        ("article.parts.text", ["Three.", "Four."]),
    ):
        (document,) = read(tmp_path / name, content, text_field=field, **options)
        assert (document.paragraphs, document.source_id, document.language) == (paragraphs, "7", "de")
    for field, message in (
        ("article.parts", "field 'article.parts' is a number"),
        ("article.bodi", r"has no field 'article.bodi' \(fields: article, article.parts, meta\)"),
        ("article.body.x", "has no field 'article.body.x'"),
        ("article.parts.x", "has no field 'article.parts.x'"),
    ):
        with pytest.raises(SourceError, match=message):
            read(tmp_path / name, content, text_field=field)
    with pytest.raises(SourceError, match=r"no record has the field 'meta.kee'"):
        read(tmp_path / name, content, text_field="article.body", id_field="meta.kee")


def test_parquet_rows_have_numbers_and_identifiers(tmp_path):
    table = pyarrow.table({"text": ["One.", None, "Three."], "key": [10, 11, 12], "lang": ["en", None, "de"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    documents = list(read_file(str(tmp_path / "a.parquet"), ReadOptions(id_field="key", language_field="lang")))
    assert [(d.line, d.source_id, d.language, d.rejected) for d in documents] == [
        (1, "10", "en", ""),
        (2, "11", "", "null_text"),
        (3, "12", "de", ""),
    ]
    with pytest.raises(SourceError, match=r"column 'kee' is missing .*--id_field"):
        list(read_file(str(tmp_path / "a.parquet"), ReadOptions(id_field="kee")))


def test_articles_have_the_line_they_begin_in(tmp_path):
    content = b'\n<doc id="1" title="A">\nA\n\nText.\n</doc>\n<doc id="2" title="B">\nB\n</doc>\n'
    assert [d.line for d in read(tmp_path / "wiki_00", content)] == [2, 7]


def test_a_field_without_a_name_is_no_source_id(tmp_path):
    # pandas writes the index of a table as such a column.
    (document,) = read(tmp_path / "a.csv", b",text\n7,A text.\n")
    assert document.source_id == ""
    (document,) = read(tmp_path / "a.jsonl", b'{"": "7", "text": "A text."}\n')
    assert document.source_id == ""


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
