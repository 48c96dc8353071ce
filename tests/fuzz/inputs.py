"""Cases with corrupt text in every input format, plain and compressed."""

import bz2
import csv
import dataclasses
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.fuzz.base import DOCUMENTS, Base, document, marker
from tests.fuzz.case import Case
from tests.fuzz.mutations import Splice, any_splice, mutated_json, spliced
from tests.fuzz.process import Outcome

# The parts of a file: the bytes before the documents, those of each document with its separator, and those after them.
Pieces = tuple[bytes, list[bytes], bytes]


def _lines(make: Callable[[int, Sequence[str]], str], head: str = "", tail: str = "") -> Pieces:
    pieces = [make(number, document(number)).encode("utf-8") for number in range(DOCUMENTS)]
    return head.encode("utf-8"), pieces, tail.encode("utf-8")


def _row(fields: Sequence[str], delimiter: str) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerow(fields)
    return file.getvalue()


def _json_array() -> Pieces:
    head, pieces, tail = _lines(lambda n, s: json.dumps({"id": n, "text": " ".join(s)}) + ",\n", "[", "]\n")
    return head, [*pieces[:-1], pieces[-1].rstrip(b",\n")], tail


def _page(number: int, sentences: Sequence[str]) -> str:
    text = f"'''{marker(number)}''' is a [[river]].\n\n== History ==\n{' '.join(sentences)}"
    return (
        f"  <page>\n    <title>{marker(number)}</title>\n    <ns>0</ns>\n    <id>{number + 1}</id>\n    <revision>\n"
        f'      <id>{number + 100}</id>\n      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


_DUMP = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n  <siteinfo>\n'
    "    <sitename>Wikipedia</sitename>\n    <dbname>enwiki</dbname>\n    <namespaces>\n"
    '      <namespace key="0" case="first-letter" />\n    </namespaces>\n  </siteinfo>\n'
)
_BOOK = ("*** START OF THE PROJECT GUTENBERG EBOOK RIVERS ***", "*** END OF THE PROJECT GUTENBERG EBOOK RIVERS ***")
_DOC = '<doc id="{0}" url="https://en.wikipedia.org/wiki?curid={0}" title="{1}">\n{1}\n\n{2}\n\n</doc>\n'
_HEADER = f"The Project Gutenberg EBook of Rivers\n\n{_BOOK[0]}\n\n"
_WARC_INFO = "WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n"


def _response(number: int, sentences: Sequence[str]) -> str:
    page = f"<html><head><title>{marker(number)}</title></head><body><p>{' '.join(sentences)}</p></body></html>"
    http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{page}"
    return (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://a.example/{marker(number)}\r\n"
        f"Content-Type: application/http\r\nContent-Length: {len(http)}\r\n\r\n{http}\r\n\r\n"
    )


# Text of a file, by (name of the file, --input_format).
FORMATS: dict[tuple[str, str], Pieces] = {
    ("a.txt", "sentences"): _lines(lambda n, s: "\n".join(s) + "\n\n"),
    ("a.txt", "text"): _lines(lambda n, s: " ".join(s) + "\n\n"),
    ("a.txt", "gutenberg"): _lines(lambda n, s: " ".join(s) + "\n\n", _HEADER, f"{_BOOK[1]}\n\nThe license.\n"),
    ("a.jsonl", "auto"): _lines(lambda n, s: json.dumps({"id": n, "text": " ".join(s)}) + "\n"),
    ("b.jsonl", "jsonl"): _lines(lambda n, s: json.dumps({"text": list(s), "url": None}) + "\n"),
    ("a.json", "auto"): _json_array(),
    ("a.csv", "auto"): _lines(lambda n, s: _row([str(n), " ".join(s)], ","), "id,text\n"),
    ("a.tsv", "auto"): _lines(lambda n, s: _row([str(n), " ".join(s)], "\t"), "id\ttext\n"),
    ("a.xml", "wikipedia"): _lines(_page, _DUMP, "</mediawiki>\n"),
    ("a", "wikiextractor"): _lines(lambda n, s: _DOC.format(n, marker(n), " ".join(s))),
    ("a.warc", "auto"): _lines(_response, _WARC_INFO),
    ("a.html", "html"): _lines(lambda n, s: f"<p>{' '.join(s)}</p>\n", "<html><body>", "</body></html>\n"),
}
_COMPRESSIONS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (lambda content: gzip.compress(content, mtime=0), gzip.decompress),
    ".bz2": (bz2.compress, bz2.decompress),
    ".xz": (lzma.compress, lzma.decompress),
    # Without the checksum, which is optional, a flipped bit may yield another text.
    ".zst": (zstandard.ZstdCompressor(write_checksum=True).compress, lambda content: zstandard.decompress(content)),
}
_ENCODINGS = (
    *("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-7"),
    *("crlf", "cr"),
)
# Units of which a line of millions of characters may consist.
_UNITS = (
    *(b"a", b"a ", b"\n", b" ", b'"', b"<", b"[[", b"{{", b"{|", b"}}", b"<doc ", b"<ref>", b"&amp;", b"'''", b"="),
    *(b".", b"\xc3", b"\0", b"A.", b"*", b"_", b"[", b'{"a":', b"\\", b",", b"\t", b"&#0;", b"http://", b"\xcc\x81"),
)


def text(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a text file of some format, corrupt or in another encoding."""
    (name, format_), pieces = random.choice(list(FORMATS.items()))
    content = _joined(pieces)
    if random.random() < 0.12:
        encoding = random.choice(_ENCODINGS)
        new = _encoded(content, encoding)
        return _corpus(random, folder, name, format_, new, f"in {encoding}", _complete)
    damaged, splice = any_splice(random, content)
    kept = _untouched(pieces, splice)
    new = spliced(content, splice)
    return _corpus(random, folder, name, format_, new, damaged, lambda outcome: _lost(outcome, kept))


def long_line(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a file that contains one unit, repeated many times."""
    (name, format_), pieces = random.choice(list(FORMATS.items()))
    head, _, tail = pieces
    unit = random.choice(_UNITS)
    size = random.choice((1_000, 100_000, 1_000_000, 1_000_000, 10_000_000))
    content = head + unit * (size // len(unit)) + tail
    return _corpus(random, folder, name, format_, content, f"{size:,} bytes of {unit!r}", lambda outcome: None)


def compressed(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt compressed file; the reader of WARC files reads around corrupt members."""
    (name, format_), pieces = random.choice([each for each in FORMATS.items() if each[0][0] != "a.warc"])
    suffix = random.choice(list(_COMPRESSIONS))
    compress, decompress = _COMPRESSIONS[suffix]
    content = _joined(pieces)
    damaged, splice = any_splice(random, compress(content))
    new = spliced(compress(content), splice)

    def wrong(outcome: Outcome) -> str | None:
        try:
            same = decompress(new) == content or not new
        except Exception:
            same = False
        return _complete(outcome) if same else "the file cannot be uncompressed" if _lost(outcome, _ALL) else None

    return _corpus(random, folder, name + suffix, format_, new, damaged, wrong)


def crawl(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt .warc.gz file, whose members are read around corrupt ones, and a rule for pages."""
    head, pages, _ = FORMATS["a.warc", "auto"]
    members: Pieces = (gzip.compress(head, mtime=0), [gzip.compress(page, mtime=0) for page in pages], b"")
    content = _joined(members)
    damaged, splice = any_splice(random, content)
    kept = _untouched(members, splice)
    new = spliced(content, splice)
    case = _corpus(random, folder, "a.warc.gz", "warc", new, damaged, lambda outcome: _lost(outcome, kept))
    rules = random.choice(([], ["--drop_duplicate_urls"], ["--pii", "mask"], ["--fix_mojibake"]))
    return dataclasses.replace(case, argv=[*case.argv, *rules])


def quality_model(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt quality model, which may reject any document but lose none."""
    damaged, splice = any_splice(random, content := base.artifact("quality.model").read_bytes())
    (folder / "quality.model").write_bytes(spliced(content, splice))
    text = _joined(FORMATS["a.txt", "sentences"])
    case = _corpus(random, folder, "a.txt", "sentences", text, f"model: {damaged}", _complete)
    return dataclasses.replace(case, argv=[*case.argv, "--quality_model", "quality.model", "--min_quality", "0.5"])


def record(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a wrong value in a record of JSON lines."""
    records = [json.dumps({"id": n, "text": document(n), "meta": {"a": [n, None]}}) for n in range(DOCUMENTS)]
    number = random.randrange(DOCUMENTS)
    mutation = mutated_json(random, records[number])
    records[number] = mutation.text
    content = "".join(f"{record}\n" for record in records).encode("utf-8", "surrogatepass")
    kept = _ALL - {marker(number)}
    return _corpus(random, folder, "a.jsonl", "auto", content, mutation.name, lambda outcome: _lost(outcome, kept))


def parquet(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt Parquet file, or with columns of other types."""
    texts = [" ".join(document(number)) for number in range(DOCUMENTS)]
    columns: dict[str, pa.Array] = {
        "bytes": pa.array([text.encode() for text in texts]),
        "not UTF-8": pa.array([text.encode() + b"\xff\xfe" for text in texts]),
        "numbers": pa.array(range(DOCUMENTS)),
        "lists of numbers": pa.array([[1, 2]] * DOCUMENTS),
        "all null": pa.array([None] * DOCUMENTS, pa.string()),
        "no type": pa.nulls(DOCUMENTS),
        "lists with nulls": pa.array([[text, None] for text in texts]),
        "structs": pa.array([{"a": text} for text in texts]),
        "no rows": pa.array([], pa.string()),
        "texts": pa.array(texts),
    }
    kind = random.choice([*columns, *["texts"] * 10])
    column = columns[kind]
    if kind == "not UTF-8":
        column = pa.Array.from_buffers(pa.string(), DOCUMENTS, column.buffers())
    file = io.BytesIO()
    compression = random.choice(("none", "snappy", "gzip"))
    pq.write_table(pa.table({"text": column}), file, compression=compression, write_page_checksum=True)
    content = file.getvalue()
    if kind != "texts":
        return _corpus(random, folder, "a.parquet", "auto", content, kind, lambda outcome: None)
    damaged, splice = any_splice(random, content)
    return _corpus(random, folder, "a.parquet", "parquet", spliced(content, splice), damaged, _complete)


def _joined(pieces: Pieces) -> bytes:
    head, documents, tail = pieces
    return head + b"".join(documents) + tail


def _encoded(content: bytes, encoding: str) -> bytes:
    if encoding in ("crlf", "cr"):
        return content.replace(b"\n", b"\r\n" if encoding == "crlf" else b"\r")
    return content.decode("utf-8").encode(encoding)


def _untouched(pieces: Pieces, splice: Splice) -> set[str]:
    """Return the markers of the documents that a change does not touch."""
    start, end, _ = splice
    if start < len(pieces[0]) or start == 0:
        # The head determines the format, the columns, and the start of a book.
        return set()
    at, kept = len(pieces[0]), set()
    for number, piece in enumerate(pieces[1]):
        if end < at or start > at + len(piece):
            kept.add(marker(number))
        at += len(piece)
    return kept


def _corpus(
    random: Random,
    folder: Path,
    name: str,
    format_: str,
    content: bytes,
    description: str,
    wrong: Callable[[Outcome], str | None],
) -> Case:
    (folder / name).write_bytes(content)
    # A second file keeps the corpus from being empty, which alone would reveal some corruption.
    other = "The last sheep stood by the old barn.\nNobody in the village knew why.\n"
    if format_ == "sentences":
        (folder / "other.txt").write_text(other, encoding="utf-8")
    inputs = [name, "other.txt"] if format_ == "sentences" else [name]
    argv = ["corpus", "--input", *inputs, "--input_format", format_, "--vocab_size", "60", "--output", "out"]
    if random.random() < 0.3:
        argv += ["--on_bad_record", "skip"]
    return Case(f"{name} {format_}: {description}", [*argv, "--min_count", "1"], wrong)


_ALL = {marker(number) for number in range(DOCUMENTS)}


def _texts(folder: Path) -> str:
    """Return all text of the corpus that a command wrote, and of the rejected documents that it lists."""
    tables = [pq.read_table(path) for path in sorted((folder / "out" / "corpus").glob("*.parquet"))]
    listed = [path.read_text(encoding="utf-8") for path in sorted((folder / "out" / "rejected").glob("*.jsonl"))]
    return "\n".join([*(str(column.to_pylist()) for table in tables for column in table.columns), *listed])


def _lost(outcome: Outcome, kept: set[str]) -> str | None:
    there = _texts(outcome.folder)
    lost = sorted(word for word in kept if word not in there)
    if lost:
        return f"{len(lost)} document(s) are missing and not listed, such as {lost[0]}"
    return "NUL characters in the corpus" if "\\x00" in there or "\0" in there else None


def _complete(outcome: Outcome) -> str | None:
    return _lost(outcome, _ALL)
