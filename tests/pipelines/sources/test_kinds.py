"""Tests of the recognition of files that are not text by their content, and of text that must not match."""

import gzip
import io
import json
import lzma
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

from pipelines.sources import ReadOptions, SourceError, check_file, read_file, recognize_format
from pipelines.sources.kinds import kind_of

SENTENCE = "A sentence of some words, as text has them.\n"


def zip_bytes(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, SENTENCE * 20)
    return buffer.getvalue()


def tar_bytes(mode: str, tar_format: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tar_format) as file:
        member = tarfile.TarInfo("a.txt")
        member.size = len(SENTENCE)
        file.addfile(member, io.BytesIO(SENTENCE.encode()))
    return buffer.getvalue()


def v7_tar_bytes() -> bytes:
    """Return a tar archive from before the format had magic bytes: zeros in their place, and a new checksum."""
    header = bytearray(tar_bytes("w")[:512])
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + SENTENCE.encode().ljust(512, b"\0") + bytes(1024)


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
    "a.zip": (zip_bytes("x.txt"), "a zip archive", "unzip"),
    "a": (zip_bytes("x.txt"), "a zip archive", "unzip"),
    "a.docx": (zip_bytes("[Content_Types].xml", "word/document.xml"), "a Word document", "pandoc"),
    "a.epub": (zip_bytes("mimetype"), "an EPUB book", "pandoc"),
    "a.xlsx": (zip_bytes("xl/workbook.xml"), "an Office document", "CSV"),
    "a.tar": (tar_bytes("w"), "a tar archive", "tar -x"),
    "old.tar": (v7_tar_bytes(), "a tar archive", "tar -x"),
    "a.tar.gz": (tar_bytes("w:gz"), "a tar archive", "tar -x"),
    "a.tar.xz": (tar_bytes("w:xz"), "a tar archive", "tar -x"),
    "a.tgz": (tar_bytes("w:gz"), "a tar archive", "tar -x"),
    "compressed": (gzip.compress(SENTENCE.encode()), "compressed with gzip", r"FILE\.gz"),
    "compressed.txt": (lzma.compress(SENTENCE.encode()), "compressed with xz", r"FILE\.xz"),
    "a.pdf": (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj", "a PDF document", "pdftotext"),
    "a.rtf": (b"{\\rtf1\\ansi Some text.}", "an RTF document", "pandoc"),
    "a.png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image", "leave it out"),
    "a.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG image", "leave it out"),
    "a.npy": (numpy_bytes(), "a NumPy array", "leave it out"),
    "a.bin": (np.arange(200, dtype=np.int64).tobytes(), "binary data", "leave it out"),
    "a.txt": ("Some text without a mark.\n".encode("utf-16-le") * 9, "UTF-16", "iconv -f utf-16"),
    "b.txt": ("Some text with a mark.\n".encode("utf-16") * 9, "UTF-16", "iconv -f utf-16"),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("input_format", ["auto", "text", "jsonl", "sentences"])
def test_binary_files_are_refused_by_name_whatever_format_is_asked_for(tmp_path, name, input_format):
    content, kind, remedy = BINARY[name]
    (tmp_path / name).write_bytes(content)
    for read in (lambda *args: list(read_file(*args)), check_file):
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
    "a.html": (b"<!DOCTYPE html>\n<html lang=en><body><p>Text.</p></body></html>", "an HTML page"),
    "a": (b"\xef\xbb\xbf\n <HTML><HEAD><TITLE>T</TITLE></HEAD></HTML>", "an HTML page"),
    "b": (b'<?xml version="1.0"?>\n<!-- c -->\n<!DOCTYPE html PUBLIC "-//W3C">\n<html></html>', "an HTML page"),
    "fragment.htm": (b"<div class=a>Text.</div>", "an HTML page"),
    "feed": (b'<?xml version="1.0" encoding="utf-8"?>\n<rss></rss>', "XML, but not a MediaWiki dump"),
    "tei.xml": (b"<TEI><text>Words.</text></TEI>", "XML, but not a MediaWiki dump"),
    "a.warc": (b"WARC/1.0\r\nWARC-Type: warcinfo\r\n", "a WARC file"),
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
    assert recognize_format("a.txt", text.encode()) == "text"


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
        assert check_file(str(path), ReadOptions()) == expected
    pages = sorted((shared_data / "html-articles/html").glob("*.html.gz"))
    assert len(pages) > 100
    for path in pages:
        with pytest.raises(SourceError, match="is an HTML page"):
            check_file(str(path), ReadOptions())


def test_formats_that_are_read():
    assert recognize_format("a.json", b'[{"text": "a"}]') == "json"
    assert recognize_format("a", b'\xef\xbb\xbf [\n {\n  "text": "a"') == "json"
    assert recognize_format("a", b'{\n  "text": "a"\n}') == "json"
    assert recognize_format("a.json", b'{"data": [\n  {"title"') == "json"
    assert recognize_format("a.json", b'["text", "text"]') == "json"
    assert recognize_format("a.json", b'{"text": "a"}\n{"text": "b"}\n') == "jsonl"
    assert recognize_format("a.jsonl", b'{"text": [\n{"text": "b"}\n') == "jsonl"
    assert recognize_format("a.csv.gz", b"text,title\n") == "csv"
    assert recognize_format("a.TSV", b"text\ttitle\n") == "tsv"
    assert recognize_format("a.txt", json.dumps([1, 2]).encode()) == "text"
