"""Tests of WARC and WET files: responses of HTTP, splits at records, and corrupt files."""

import bz2
import gzip
import json
import re
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert import cli
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import warc
from beambert.pipelines.formats.html import MAX_PAGE_BYTES, PAGE_TOO_LARGE
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import find_format, read_file, split_file

DATE = "2026-11-01T00:00:00Z"
PAGE = "<html lang=en><title>Page {0}</title><body><p>Page {0} has one sentence about rivers.</p></body></html>"


def record(kind: str, body: bytes, url: str = "", content_type: str = "", length: int | None = None) -> bytes:
    fields = {
        "WARC-Type": kind,
        "WARC-Target-URI": url,
        "WARC-Date": DATE,
        "Content-Type": content_type,
        "Content-Length": str(len(body) if length is None else length),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"WARC/1.0\r\n{lines}\r\n".encode() + body + b"\r\n\r\n"


def response(
    number: int, body: bytes | None = None, status: str = "200 OK", length: int | None = None, **fields
) -> bytes:
    body = PAGE.format(number).encode() if body is None else body
    fields = {"Content-Type": "text/html; charset=utf-8", **fields}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    http = f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body
    return record("response", http, f"https://a.example/{number}", "application/http; msgtype=response", length)


def request(number: int) -> bytes:
    return record("request", b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", f"https://a.example/{number}")


INFO = record("warcinfo", b"software: test\r\n", content_type="application/warc-fields")


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".zst": zst}


def write(folder, records: list[bytes], suffix: str = "", name: str = "a.warc") -> str:
    path = folder / f"{name}{suffix}"
    path.write_bytes(b"".join(map(COMPRESSIONS[suffix], records)))
    return str(path)


def read(path: str, input_format: str = "auto", start: int = 0, stop: int | None = None):
    return list(read_file(path, ReadOptions(input_format), start, stop))


def shown(documents) -> list[str]:
    """Return the rule or else the text of each document."""
    return [document.rejected or document.text for document in documents]


def sentence(number: int) -> str:
    return f"Page {number} has one sentence about rivers."


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_pages_with_their_metadata(tmp_path, suffix):
    records = [INFO, request(1), response(1), record("metadata", b"x: y\r\n"), request(2), response(2)]
    documents = read(write(tmp_path, records, suffix))
    assert shown(documents) == [sentence(1), sentence(2)]
    first = documents[0]
    assert (first.title, first.language) == ("Page 1", "en")
    assert first.metadata == {"url": "https://a.example/1", "date": DATE}
    offset = sum(len(COMPRESSIONS[suffix](part)) for part in records[:2])
    assert first.byte == offset


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.warc.gz", gzip.compress(INFO + response(1) + request(2) + response(2))),
        ("a.warc.zst", zst(INFO + response(1) + response(2))),
        ("a.warc.bz2", bz2.compress(INFO + response(1) + response(2))),
        ("pages", INFO + response(1) + response(2)),
        ("pages.gz", gzip.compress(INFO) + gzip.compress(response(1)) + gzip.compress(response(2))),
        # Members that are not those of the records.
        (
            "b.warc.gz",
            b"".join(gzip.compress(part) for part in (INFO + response(1)[:90], response(1)[90:] + response(2))),
        ),
    ],
    ids=["one member", "zst", "bz2", "without a suffix", "members", "members of other parts"],
)
def test_other_layouts(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    path = str(tmp_path / name)
    assert shown(read(path)) == shown(read(path, "warc")) == [sentence(1), sentence(2)]
    splits = [read(path, "auto", start, start + 100) for start in range(100, len(data), 100)]
    assert not any(splits) or name == "pages"


def test_every_record_that_is_no_page_has_a_rule(tmp_path):
    records = [
        response(1, status="404 Not Found"),
        response(2, status="301 Moved", Location="/1"),
        response(3, b"%PDF-1.4", **{"Content-Type": "application/pdf"}),
        response(4, b"no type", **{"Content-Type": ""}),
        response(5, **{"Content-Type": ""}),
        response(6, **{"Content-Type": "application/xhtml+xml"}),
        record("revisit", b"HTTP/1.1 200 OK\r\n\r\n", "https://a.example/7"),
        record("resource", PAGE.format(8).encode(), "https://a.example/8", "text/html"),
        record("resource", b"a log", "urn:log", "text/plain"),
        record("response", b"20200101 a.example 1.2.3.4", "dns:a.example", "text/dns"),
        record("response", b"<p>no headers</p>", "https://a.example/9", "application/http"),
        response(10, b"<html></html>"),
    ]
    documents = read(write(tmp_path, records))
    rules = "http_status http_status not_html not_html - - revisit - not_html not_html not_html -"
    assert [document.rejected or "-" for document in documents] == rules.split()
    assert [document.title for document in documents if document.text] == ["Page 5", "Page 6", "Page 8"]
    assert documents[0].metadata == {"url": "https://a.example/1", "date": DATE, "status": "404"}
    assert documents[2].metadata["content_type"] == "application/pdf"


def chunked(body: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("encode", "fields"),
    [
        (chunked, {"Transfer-Encoding": "chunked"}),
        (gzip.compress, {"Content-Encoding": "gzip"}),
        (lambda body: chunked(gzip.compress(body)), {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"}),
        # Decoded by the crawler, which kept the fields.
        (bytes, {"Content-Encoding": "gzip"}),
        (bytes, {"Transfer-Encoding": "chunked"}),
    ],
)
def test_encodings_of_the_content(tmp_path, encode, fields):
    path = write(tmp_path, [response(1, encode(PAGE.format(1).encode()), **fields)])
    assert shown(read(path)) == [sentence(1)]


def test_the_charset_of_the_server(tmp_path):
    body = "<p>Größe und Maß sind hier in einem Satz.</p>".encode("iso-8859-2", "replace")
    path = write(tmp_path, [response(1, body, **{"Content-Type": "text/html; charset=ISO-8859-2"})])
    assert shown(read(path)) == ["Größe und Maß sind hier in einem Satz."]


def test_wet_files(tmp_path):
    text = "Erste Zeile.\nZweite Zeile: Größe.\n\n"
    records = [
        INFO,
        record("conversion", text.encode(), "https://a.example/1", "text/plain"),
        record("conversion", b""),
    ]
    for name, input_format in (("a.warc.wet", "auto"), ("a.warc.wet", "wet")):
        first, second = read(write(tmp_path, records, ".gz", name), input_format)
        assert first.paragraphs == ["Erste Zeile.", "Zweite Zeile: Größe."]
        assert first.metadata["url"] == "https://a.example/1"
        assert second.paragraphs == []


# ---- Ranges

GOOD = st.integers(1, 99).flatmap(lambda number: st.sampled_from([response(number), request(number)]))
# Text that looks like the start of a record or of a member.
TRICKY = st.sampled_from(
    [
        response(7, b"<p>A page about the lines WARC/1.0 and Content-Length.</p>"),
        response(7, b"<p>" + gzip.compress(b"no record", 9) + b"</p>"),
        response(7, b"\x1f\x8b\x08" * 9),
        response(7, b"\r\n\r\nWARC"),
    ]
)
BAD = st.sampled_from(
    [
        response(5, length=9),
        response(5, length=400),
        response(5, length=10**15),
        record("response", b"")[:30] + b"\r\n\r\n",
        b"garbage\r\n\r\n",
        b"WARC/1.0\r\nContent-Length: -3\r\n\r\n\r\n\r\n",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    records=st.lists(st.one_of(GOOD, GOOD, TRICKY, BAD), max_size=8),
    suffix=st.sampled_from([".gz", ".zst", ""]),
    step=st.integers(30, 600),
    cut=st.integers(0, 40),
    flip=st.integers(-1, 2000),
)
def test_ranges_have_the_documents_of_the_file(tmp_path_factory, records, suffix, step, cut, flip):
    folder = tmp_path_factory.mktemp("warc")
    data = bytearray(b"".join(map(COMPRESSIONS[suffix], [INFO, *records])))
    if suffix and len(COMPRESSIONS[suffix](INFO)) < flip < len(data):
        data[flip] ^= 0x55
    path = folder / f"a.warc{suffix}"
    path.write_bytes(data[: len(data) - cut] if cut < len(data) - len(COMPRESSIONS[suffix](INFO)) else data)
    size = path.stat().st_size
    ranges = [(start, start + step if start + step < size else None) for start in range(0, size, step)]
    complete = read(str(path))
    assert [document for each in ranges for document in read(str(path), "auto", *each)] == complete
    # Every page that is not next to a corrupt record is read.
    if not flip and not cut:
        assert len(complete) >= sum(b"response\r\n" in part[:40] for part in records)


def test_a_large_file_is_divided(tmp_path):
    assert len(split_file("a.warc.gz", 100 << 20, ReadOptions())) == 25
    assert len(split_file("a.warc", 100 << 20, ReadOptions())) == 7
    assert len(split_file("a.gz", 100 << 20, ReadOptions())) == 1


# ---- Corrupt and hostile files


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (response(2, length=9), ["broken_record"]),
        # One byte more: the next record begins where this one ends.
        (response(2, length=len(response(2))), ["broken_record"]),
        (response(2, length=10**15), ["broken_record"]),
        (b"garbage" * 9 + b"\r\n\r\n", ["broken_record"]),
        (response(2).replace(b"Content-Length", b"Content-Size"), ["broken_record"]),
        (b"WARC/1.0\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n\r\n\r\n", ["broken_record"]),
    ],
)
def test_records_around_a_corrupt_one_are_read(tmp_path, suffix, bad, found):
    documents = read(write(tmp_path, [INFO, response(1), bad, response(3), response(4)], suffix))
    rules = [rule for rule in shown(documents) if not rule.startswith("Page")]
    assert rules in (found, ["truncated"])
    assert [text for text in shown(documents) if text.startswith("Page")] == [sentence(1), sentence(3), sentence(4)]


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_truncated_file_is_read_up_to_its_end(tmp_path, suffix):
    path = tmp_path / f"a.warc{suffix}"
    path.write_bytes(b"".join(map(COMPRESSIONS[suffix], [INFO, response(1), response(2)]))[:-30])
    documents = read(str(path))
    # A frame of zstandard is decompressed as a whole.
    assert shown(documents) == [sentence(1), "broken_record" if suffix == ".zst" else "truncated"]
    assert documents[1].metadata.get("url") in (None, "https://a.example/2")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_corrupt_member_loses_only_its_record(tmp_path, suffix):
    compress = COMPRESSIONS[suffix]
    first, second, third = (compress(response(number)) for number in (1, 2, 3))
    middle = bytearray(second)
    middle[len(middle) // 2] ^= 0xFF
    path = tmp_path / f"a.warc{suffix}"
    path.write_bytes(first + bytes(middle) + third + b"\0" * 50)
    texts = shown(read(str(path)))
    assert texts[0] == sentence(1)
    assert sentence(3) in texts
    assert {*texts} - {sentence(1), sentence(3)} <= {"broken_record", "truncated"}
    assert sentence(2) not in texts


def deflated(parts: list[bytes]) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*map(compressor.compress, parts), compressor.flush()])


def test_large_pages_and_bombs_use_little_memory(tmp_path):
    """A page that decompresses to 100 MB, a record of 100 MB, and a page above the limit; each is rejected."""
    zeros = [b"a" * (1 << 20)] * 100
    bomb = deflated(zeros)
    length = len(response(2, b"").partition(b"\r\n\r\n")[2]) - 4 + (100 << 20)
    member = deflated([response(2, b"", length=length)[:-4], *zeros, b"\r\n\r\n"])
    records = [response(1, bomb, **{"Content-Encoding": "gzip"}), response(3, b"<p>" + b"a" * MAX_PAGE_BYTES)]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(gzip.compress(records[0]) + member + gzip.compress(records[1]) + gzip.compress(response(4)))
    tracemalloc.start()
    texts = shown(read(str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts == [PAGE_TOO_LARGE] * 3 + [sentence(4)]
    assert peak < 60 << 20


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.warc", b"<html><body>", "is not a WARC file: "),
        ("a.warc.gz", gzip.compress(b"text", mtime=0), "is not a WARC file: "),
        ("a.warc.gz", b"text", "is not "),
        ("a.txt", b"text", "is not a WARC file: "),
        ("a.warc.zst", b"\x5d\x2a\x4d\x18\x08\0\0\0" + b"a" * 8, "compressed with a dictionary .*zstd -d"),
    ],
)
def test_other_files_are_refused(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=message):
        read(str(tmp_path / name), "warc")


def test_text_about_warc_stays_text():
    assert not warc.WARC.recognizes("a.txt", b"WARC/1.0 is a format.\n")


def test_a_crawl_becomes_a_corpus(tmp_path, monkeypatch, capsys):
    """Rules and pages are counted, and the corpus and its lists have the URLs; splits do not change the files."""
    records = [INFO, *(response(number) for number in range(40)), response(41, status="500 Error"), request(1)]
    path = write(tmp_path, records, ".gz")
    assert find_format(path, ReadOptions()).name == "warc"
    contents = []
    for name in ("one", "many"):
        argv = ["corpus", "--input", path, "--output", str(tmp_path / name), "--vocab_size", "100"]
        assert cli.main([*argv, "--validation_fraction", "0", "--num_partitions", "2"]) == 0
        files = sorted([*(tmp_path / name).glob("*/*"), tmp_path / name / "vocab.txt"])
        contents.append([(file.name, file.read_bytes()) for file in files])
        monkeypatch.setitem(warc.WARC.range_bytes, ".warc.gz", 1000)
    assert contents[0] == contents[1]
    assert "1 file split," in (printed := capsys.readouterr().out)
    assert re.search(r"\b1\d file splits,", printed)
    counts = json.loads((tmp_path / "one" / "corpus.json").read_text())["counts"]
    assert counts["documents_read"] == 41
    assert counts["documents_rejected"] == {"http_status": 1}
    (listed,) = (tmp_path / "one" / "rejected").glob("*.jsonl")
    line = json.loads(listed.read_text())
    assert line["metadata"] == {"url": "https://a.example/41", "date": DATE, "status": "500"}
    assert counts["domains"] == {"a.example": {"bytes": counts["bytes"], "documents": 40, "rejected": 1}}
    (sample,) = counts["samples"]["http_status"]
    assert sample == {"id": line["id"], "place": "https://a.example/41", "text": "", "title": ""}
