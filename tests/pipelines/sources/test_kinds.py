"""Tests of the recognition of files by their content: binary files, markup, wide encodings, and ordinary text."""

import gzip
import io
import json
import lzma
import os
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beambert.pipelines.cleaning.decontamination import read_evaluation_texts
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import recognize
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.formats.lines import wide_encoding
from beambert.pipelines.sources.readers import find_format, kind_of, read_file
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.utf8_files import read_text

SENTENCE = "A sentence of some words, as text has them.\n"


def zip_bytes(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, SENTENCE * 20)
    return buffer.getvalue()


def tar_bytes(mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as file:
        member = tarfile.TarInfo("a.txt")
        member.size = len(SENTENCE)
        file.addfile(member, io.BytesIO(SENTENCE.encode()))
    return buffer.getvalue()


def sqlite_bytes(folder: Path) -> bytes:
    connection = sqlite3.connect(folder / "made.db")
    connection.execute("create table texts (body text)")
    connection.commit()
    connection.close()
    return (folder / "made.db").read_bytes()


def numpy_bytes() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(100))
    return buffer.getvalue()


def parquet_bytes() -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), buffer)
    return buffer.getvalue()


# {name: (content, kind in the message, remedy)}
BINARY = {
    "a": (zip_bytes("x.txt"), "a zip archive", "unzip"),
    "a.docx": (zip_bytes("[Content_Types].xml", "word/document.xml"), "a zip archive or office document", "pandoc"),
    "a.tar": (tar_bytes("w"), "a tar archive", "tar -x"),
    "a.tar.gz": (tar_bytes("w:gz"), "a tar archive", "tar -x"),
    "a.tar.xz": (tar_bytes("w:xz"), "a tar archive", "tar -x"),
    "a.tgz": (tar_bytes("w:gz"), "a tar archive", "tar -x"),
    "compressed": (gzip.compress(SENTENCE.encode()), "compressed with gzip", r"FILE\.gz"),
    "compressed.txt": (lzma.compress(SENTENCE.encode()), "compressed with xz", r"FILE\.xz"),
    "a.pdf": (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj", "a PDF document", "pdftotext"),
    "a.rtf": (b"{\\rtf1\\ansi Some text.}", "an RTF document", "pandoc"),
    "a.png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\3\x48\0\0\2\x4e", "binary data", "leave it out"),
    "a.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "binary data", "leave it out"),
    "a.npy": (numpy_bytes(), "binary data", "leave it out"),
    "a.bin": (np.arange(200, dtype=np.int64).tobytes(), "binary data", "leave it out"),
    "a.txt": ("Some text without a mark.\n".encode("utf-16-le") * 9, "UTF-16", "iconv -f utf-16"),
    "b.txt": ("Some text with a mark.\n".encode("utf-16") * 9, "UTF-16", "iconv -f utf-16"),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("input_format", ["auto", "sentences"])
def test_binary_files_are_refused_by_name_whatever_format_is_asked_for(tmp_path, name, input_format):
    content, kind, remedy = BINARY[name]
    (tmp_path / name).write_bytes(content)
    for read in (lambda *args: list(read_file(*args)), find_format):
        with pytest.raises(SourceError, match=rf"{name} is {kind}.*; .*{remedy}"):
            read(str(tmp_path / name), ReadOptions(input_format))


def test_a_database_and_a_parquet_file_under_another_name(tmp_path):
    for name, content, kind in [
        ("a.db", sqlite_bytes(tmp_path), "an SQLite database; .*sqlite3"),
        ("a.txt", parquet_bytes(), "a Parquet file; .*--input_format parquet"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=kind):
            list(read_file(str(tmp_path / name), ReadOptions("text")))


MARKUP = {
    "feed": (b'<?xml version="1.0" encoding="utf-8"?>\n<rss></rss>', "XML, but not a MediaWiki dump"),
    "tei.xml": (b"<TEI><text>Words.</text></TEI>", "XML, but not a MediaWiki dump"),
}


@pytest.mark.parametrize("name", MARKUP)
def test_markup_is_refused_unless_it_is_asked_for_as_text(tmp_path, name):
    content, kind = MARKUP[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=f"{name} is {kind}; "):
        list(read_file(str(tmp_path / name), ReadOptions()))
    assert len(list(read_file(str(tmp_path / name), ReadOptions("text")))) == 1


# Ordinary text whose first characters could be mistaken for those of another format.
ORDINARY = [
    "[1] A reference, and then a text.",
    "[Illustration: a ship]\n\nIt was, of all ships, the best, the fastest, the last.",
    '["A quotation in brackets"], he said.',
    "<html> is the root element of a page.\n",
    "<body> and <head> are its children.",
    "<!doctype html> stands in the first line.",
    "<< Read on, >> he said, < not knowing why.",
    "<b>Bold</b> words in the first line of a text.",
    "<3 is a heart.",
    "PKZIP was a program. II* is none.",
    "BZh is no word. OggS neither, nor ID3, nor GIF.",
    "%PDF is what those files begin with.",
    "a,b,c\n1,2,3\n",
    "Names,\nand commas,\nat the end of lines,\n",
    "a\tb\n1\t2\n",
    "A form feed\f and an escape \x1b[1m of a terminal.\x1a",
    "ustar",
    "",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_text(text):
    assert kind_of("a.txt", text.encode()) is None
    assert recognize("a.txt", text.encode()).name == "text"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t<>[],;\"'"), max_size=600))
@example("<" * 300)
def test_no_text_is_binary_or_markup(text):
    """Generate text that begins with letters of any script, brackets, commas or quotes.

    It does not include the first tags of an HTML page.
    """
    kind = kind_of("a.txt", text.encode())
    assert kind is None or text.lstrip().startswith(("{\\rtf", "%PDF-", "%!PS-Adobe", "PAR1", "GIF8"))


@given(
    st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cc"]), max_size=300),
    st.sampled_from(["latin-1", "cp1252", "cp437", "koi8-r", "shift_jis", "gb18030", "big5", "euc-kr", "iso2022_jp"]),
)
def test_text_of_other_encodings_is_not_binary(text, encoding):
    data = text.encode(encoding, "ignore")
    kind = kind_of("a.txt", data)
    assert kind is None or not kind.name.startswith("binary") or b"\x1b" in data


def test_no_alarm_on_real_text(shared_data):
    for path in [
        *sorted((shared_data / "gutenberg").glob("*.txt")),
        *sorted((shared_data / "wiki-extracted").glob("*.bz2")),
        *sorted((shared_data / "wiki-dump").glob("*.bz2")),
        shared_data / "segmentation/golden_rules.jsonl",
    ]:
        expected = path.suffix == ".jsonl"
        assert find_format(str(path), ReadOptions()).has_fields == expected
    pages = sorted((shared_data / "html-articles/html").glob("*.html.gz"))
    assert len(pages) > 100
    for path in pages:
        assert find_format(str(path), ReadOptions()).name == "html"


def test_formats_that_are_read():
    assert recognize("a.html", b"<!DOCTYPE html>\n<html lang=en><body><p>Text.</p></body></html>").name == "html"
    assert recognize("a", b"\xef\xbb\xbf\n <HTML><HEAD><TITLE>T</TITLE></HEAD></HTML>").name == "html"
    assert (
        recognize("b", b'<?xml version="1.0"?>\n<!-- c -->\n<!DOCTYPE html PUBLIC "-//W3C">\n<html></html>').name
        == "html"
    )
    assert recognize("fragment.htm", b"<div class=a>Text.</div>").name == "html"
    assert recognize("a.txt", b"WARC/1.0\r\nWARC-Type: warcinfo\r\n").name == "warc"
    assert recognize("a.json", b'[{"text": "a"}]').name == "json"
    assert recognize("a", b'\xef\xbb\xbf [\n {\n  "text": "a"').name == "json"
    assert recognize("a", b'{\n  "text": "a"\n}').name == "json"
    assert recognize("a.json", b'{"data": [\n  {"title"').name == "json"
    assert recognize("a.json", b'["text", "text"]').name == "json"
    assert recognize("a.json", b'{"text": "a"}\n{"text": "b"}\n').name == "jsonl"
    assert recognize("a.jsonl", b'{"text": [\n{"text": "b"}\n').name == "jsonl"
    assert recognize("a.csv.gz", b"text,title\n").name == "csv"
    assert recognize("a.TSV", b"text\ttitle\n").name == "tsv"
    assert recognize("a.txt", json.dumps([1, 2]).encode()).name == "text"


ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
CONTENT = {
    "sentences": "A sentence.\nAnother.\n",
    "text": "A text.\n",
    "bookcorpus": "A sentence.\n",
    "gutenberg": "The Project Gutenberg EBook of Rivers\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\nText.\n",
    "jsonl": '{"text": "A text."}\n',
    "json": '[{"text": "A text."}]\n',
    "csv": "text\nA text.\n",
    "tsv": "text\nA text.\n",
    "wikiextractor": '<doc id="1" url="" title="A">\nA text.\n</doc>\n',
}


@pytest.mark.parametrize("input_format", CONTENT)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le"])
def test_every_reader_refuses_wide_encodings(tmp_path, input_format, encoding):
    name = encoding[:6]
    for path, data in {
        tmp_path / "a.txt": CONTENT[input_format].encode(encoding),
        tmp_path / "b.txt": (CONTENT[input_format] * 500).encode(encoding),
        tmp_path / "c.txt.gz": gzip.compress(CONTENT[input_format].encode(encoding)),
    }.items():
        path.write_bytes(data)
        for asked in (input_format, "auto"):
            options = ReadOptions(input_format=asked)
            for read in (lambda path, options: list(read_file(path, options)), find_format):
                with pytest.raises(SourceError, match=f"is {name.upper()}; convert it first: iconv -f {name} -t utf-8"):
                    read(str(path), options)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_fine_tuning_and_evaluation_files_in_wide_encodings_are_refused(tmp_path, encoding):
    name = encoding[:6].upper()
    for content in ("text,label\na,0\n", '{"text": "a"}\n', "EU B-ORG\n"):
        path = tmp_path / "train.csv"
        path.write_bytes(content.encode(encoding))
        with pytest.raises(TaskDataError, match=f"is {name}: convert it with iconv -f {name} -t UTF-8 train.csv"):
            read_text(path)
        with pytest.raises(SourceError, match=f"--decontaminate .* is encoded in {name}, not in UTF-8; convert"):
            list(read_evaluation_texts(str(path)))


@given(st.text(min_size=2), st.sampled_from(["", "\0", "\0\0"]))
def test_utf8_text_with_few_nul_characters_is_not_wide(text, nul):
    data = (text.replace("\0", "") + "x" * 8 + nul).encode("utf-8", "replace")
    assert not wide_encoding(data)


@given(st.text(st.characters(min_codepoint=9, max_codepoint=126), min_size=2), st.sampled_from(ENCODINGS))
def test_ascii_text_in_a_wide_encoding_is_recognized(text, encoding):
    assert wide_encoding(text.encode(encoding)) == encoding[:6].upper()


def test_a_fine_tuning_file_that_is_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "train.tsv")
    with pytest.raises(TaskDataError, match=r"train\.tsv cannot be read \(it is a named pipe \(FIFO\)\)"):
        read_text(tmp_path / "train.tsv")
    with pytest.raises(TaskDataError, match=r"cannot be read \(it is a directory\)"):
        read_text(tmp_path)
