"""Tests that the ranges of a file have the documents of the file, for any boundaries."""

import bz2
import contextlib
import dataclasses
import gzip
import io
import itertools
import json
import lzma
import math
import random
import re
import struct
import zlib
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import fields, frames, get_format, text
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.formats.lines import lines_of_stream
from beambert.pipelines.sources import readers
from beambert.pipelines.sources.readers import open_lines, read_file, split_file
from tests.conftest import with_slow

# ---- Content

TEXTS = ["Ein Satz.", "Bär, Öl, 日本", "😀" * 3, "x", "ab " * 40]
ENDS = [b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\n \t\n\n", "\n\u00a0\u3000\n".encode(), b"\n\r\n\r\n", b"\r", b""]
BROKEN = [b"B\xe4r", b"\xff\xfe", b"\xe6\x97"]


def json_line(**record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")


RECORDS = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: json_line(text=text)),
    st.sampled_from(TEXTS).map(lambda text: json_line(text=text, key=len(text), language="en")),
    st.lists(st.sampled_from(TEXTS), max_size=3).map(lambda text: json_line(text=text, title="T")),
)
BAD_RECORDS = st.sampled_from([b"{", b"[1]", b'{"text": null}', b"7", b'{"body": 1}', b'{"text": "a"', *BROKEN])
ARTICLE = st.builds(
    lambda title, lines, is_closed: "\n".join(
        [f'<doc id="1" url="u" title="{title}">', title, *lines, *(["</doc>"] if is_closed else [])]
    ).encode(),
    st.sampled_from(["A", 'B "C"', "Bär &amp; Öl"]),
    st.lists(st.sampled_from([*TEXTS, "", "a &lt;b&gt;"]), max_size=4),
    st.sampled_from([True, True, False]),
)
WIKI_RECORDS = st.sampled_from(TEXTS).map(
    lambda text: json_line(id="1", url="u", title="A", text="\n".join(["A", text]))
)


def joined(items, broken) -> st.SearchStrategy[bytes]:
    """Return the content of a file: items and line ends, at most one broken item, sometimes a byte order mark."""
    pairs = st.lists(st.tuples(items, st.sampled_from(ENDS)), max_size=24)
    return st.builds(
        lambda mark, pairs, place, bad: mark + b"".join(
            item + end
            for item, end in ([*pairs[:place], *bad, *pairs[place:]])
        ),
        st.sampled_from([b"", b"\xef\xbb\xbf"]),
        pairs,
        st.integers(0, 24),
        st.one_of(st.just([]), st.tuples(st.tuples(broken, st.just(b"\n")))),
    )  # fmt: skip


SENTENCES = st.sampled_from([text.encode() for text in TEXTS])
CONTENTS = {
    "sentences": joined(SENTENCES, st.sampled_from(BROKEN)),
    "bookcorpus": joined(SENTENCES, st.sampled_from(BROKEN)),
    "jsonl": joined(RECORDS, BAD_RECORDS),
    "wikiextractor": joined(ARTICLE, st.sampled_from([*BROKEN, b"outside"])),
    "wikiextractor_json": joined(WIKI_RECORDS, BAD_RECORDS),
}


# ---- Compression


def skippable(data: bytes) -> bytes:
    return b"\x5e\x2a\x4d\x18" + struct.pack("<I", len(data)) + data


def seekable(parts: list[bytes]) -> bytes:
    """Return frames and their table, in the seekable format of zstandard's contrib/seekable_format."""
    stored = [zstandard.ZstdCompressor().compress(part) for part in parts]
    entries = b"".join(struct.pack("<II", len(a), len(b)) for a, b in zip(stored, parts, strict=True))
    return b"".join(stored) + skippable(entries + struct.pack("<IBI", len(parts), 0, 0x8F92EAB1))


def zst(part: bytes, **options) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(part)


COMPRESSIONS = {
    "": b"".join,
    ".bz2": lambda parts: b"".join(bz2.compress(part, 1) for part in parts if part),
    ".zst": lambda parts: b"".join(zst(part, write_checksum=True) for part in parts),
    ".seekable.zst": seekable,
    ".pzstd.zst": lambda parts: b"".join(skippable(b"size") + zst(part, write_content_size=False) for part in parts),
    ".one.zst": lambda parts: zst(b"".join(parts)),
    ".one.bz2": lambda parts: bz2.compress(b"".join(parts)),
    ".gz": lambda parts: gzip.compress(b"".join(parts)),
    ".xz": lambda parts: lzma.compress(b"".join(parts)),
}


def parts_of(content: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return [content[start:stop] for start, stop in itertools.pairwise(edges)]


# ---- Reading


def outcome(documents) -> tuple[list, str]:
    """Return the documents up to the first error, and its message."""
    read = []
    try:
        for document in documents:
            read.append(document)
    except SourceError as error:
        return read, str(error)
    return read, ""


def edges_of(cuts: list[int], size: int) -> list[tuple[int, int | None]]:
    starts = sorted({0, *(cut % size for cut in cuts if size)})
    return list(zip(starts, [*starts[1:], None], strict=True))


def by_ranges(path: str, options: ReadOptions, edges: list[tuple[int, int | None]]):
    for start, stop in edges:
        yield from read_file(path, options, start, stop)


def without_positions(documents: list[Document]) -> list[Document]:
    return [dataclasses.replace(document, line=0, byte=-1) for document in documents]


def without_position(message: str) -> str:
    return re.sub(r"(?:line|byte) [\d,]+", "POSITION", message)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges")


@pytest.fixture(scope="module", autouse=True)
def small_limits():
    """Limits that short content reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_SENTENCES_PER_BOOK", 3)
        patch.setattr(fields, "_MAX_RECORDS_WITHOUT_FIELD", 5)
        yield


@contextlib.contextmanager
def chunks_of(count: int) -> Iterator[None]:
    """Read chunks of a number of bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "CHUNK_BYTES", count)
        yield


CUTS = st.lists(st.integers(0, 1 << 20), max_size=8)


@pytest.mark.parametrize("name", CONTENTS)
@settings(max_examples=80)
@given(data=st.data())
def test_ranges_have_the_documents_of_the_file(folder, name, data):
    content = data.draw(CONTENTS[name], "content")
    suffix = data.draw(st.sampled_from(list(COMPRESSIONS)), "suffix")
    stored = COMPRESSIONS[suffix](parts_of(content, data.draw(CUTS, "frames")))
    path = folder / f"a{suffix}"
    path.write_bytes(stored)
    options = ReadOptions(
        name.removesuffix("_json"),
        data.draw(st.sampled_from(["utf-8", "utf-8", "latin-1", "shift_jis"]), "encoding"),
        on_bad_record=data.draw(st.sampled_from(["stop", "skip"]), "bad records"),
        id_field=data.draw(st.sampled_from(["", "key"]), "ID field"),
    )
    edges = edges_of(data.draw(CUTS, "ranges"), len(stored))
    with chunks_of(data.draw(st.sampled_from([5, 256 << 10]), "bytes of a chunk")):
        whole, error = outcome(read_file(str(path), options))
        documents, error_of_ranges = outcome(by_ranges(str(path), options, edges))
        assert without_position(error_of_ranges) == without_position(error)
        # The first range may raise an error about the first records before the second one is read.
        assert without_positions(documents) == without_positions(whole)[: len(documents) if error else None]


def plain_reference(content: bytes, is_end) -> list[list[str]]:
    """Return the lines of the documents between blank lines, from the text as one string."""
    text = content.decode("utf-8").removeprefix("\ufeff")
    # Before LF, CR is a part of the line end; elsewhere it is one itself.
    lines = [part for line in text.split("\n") for part in line.rstrip("\r").split("\r")]
    documents: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            documents[-1].append(line)
        if not line.strip() or is_end(line):
            documents.append([])
    return [document for document in documents if document]


@pytest.mark.parametrize(
    ("name", "is_end"),
    [("sentences", lambda line: False), ("bookcorpus", lambda line: zlib.crc32(line.strip().encode()) % 3 == 0)],
)
@settings(max_examples=80)
@given(content=joined(SENTENCES, SENTENCES), cuts=CUTS, frames=CUTS, suffix=st.sampled_from(["", ".zst", ".bz2"]))
def test_ranges_equal_a_plain_reference(folder, name, is_end, content, cuts, frames, suffix):
    stored = COMPRESSIONS[suffix](parts_of(content, frames))
    path = folder / f"reference{suffix}"
    path.write_bytes(stored)
    documents = list(by_ranges(str(path), ReadOptions(name), edges_of(cuts, len(stored))))
    assert [document.paragraphs for document in documents] == plain_reference(content, is_end)


@pytest.mark.parametrize("suffix", ["", ".bz2", ".zst"])
def test_every_byte_as_a_boundary(tmp_path, suffix):
    """Include boundaries inside a character, a run of blank lines and the byte order mark, and at CR and LF."""
    content = "\ufeffBär\r\n日本\r\n\r\n \n\nDrei\n\n\n\n😀\nFünf".encode()
    stored = COMPRESSIONS[suffix](parts_of(content, list(range(0, 60, 7))))
    path = tmp_path / f"a{suffix}"
    path.write_bytes(stored)
    options = ReadOptions("sentences")
    whole = list(read_file(str(path), options))
    assert [document.line for document in whole] == [1, 6, 10]
    whole = without_positions(whole)
    for cut in range(1, len(stored)):
        assert without_positions(by_ranges(str(path), options, [(0, cut), (cut, None)])) == whole, cut
    documents = list(by_ranges(str(path), options, edges_of(list(range(len(stored))), len(stored))))
    assert without_positions(documents) == whole
    if not suffix:
        starts = ["\ufeffBär", "Drei", "😀"]
        assert [document.byte for document in documents] == [content.index(start.encode()) for start in starts]


# ---- Frames


@pytest.mark.parametrize("suffix", [".bz2", ".zst", ".seekable.zst", ".pzstd.zst"])
def test_only_ranges_with_a_frame_have_documents(tmp_path, suffix):
    parts = [b"".join(json_line(text=f"Document {n}-{m}.") + b"\n" for m in range(20)) for n in range(8)]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](parts))
    size = path.stat().st_size
    edges = edges_of(list(range(0, size, 20)), size)
    ranges_read = [list(read_file(str(path), ReadOptions(), start, stop)) for start, stop in edges]
    assert [len(documents) for documents in ranges_read if documents] == [21, *[20] * 6, 19]
    # The offset of a document is that of its frame.
    assert len({document.byte for document in itertools.chain(*ranges_read)}) == 8


@pytest.mark.parametrize("damage", ["bit", "end", "zeros after", "text after", "frame cut out"])
@pytest.mark.parametrize("suffix", [".bz2", ".zst"])
def test_a_corrupt_file_has_the_error_of_the_whole_file(tmp_path, suffix, damage):
    parts = [b"".join(json_line(text=f"Document {n}-{m}.") + b"\n" for m in range(20)) for n in range(8)]
    stored = [COMPRESSIONS[suffix]([part]) for part in parts]
    content = bytearray(b"".join(stored))
    third = len(stored[0] + stored[1])
    if damage == "bit":
        content[third + len(stored[2]) // 2] ^= 0x10
    elif damage == "end":
        del content[-5:]
    elif damage == "frame cut out":
        del content[third + 20 : third + 30]
    else:
        content += bytes(20) if damage == "zeros after" else b"more text"
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"".join(stored))
    intact = without_positions(list(read_file(str(path), ReadOptions())))
    path.write_bytes(content)
    documents, error = outcome(read_file(str(path), ReadOptions()))
    assert "is not a complete" in error
    assert without_positions(documents) == intact[: len(documents)]
    for count in (2, 5, 40):
        edges = edges_of(list(range(0, len(content), len(content) // count)), len(content))
        documents, error = outcome(by_ranges(str(path), ReadOptions(), edges))
        assert "is not a complete" in error
        assert without_positions(documents) == intact[: len(documents)]


def random_text(seed: int, size: int) -> bytes:
    """Return bytes that zstandard stores as they are, without line ends."""
    return random.Random(seed).randbytes(size).replace(b"\n", b"x")


@pytest.mark.parametrize("planted", [b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x00\x58", zst(b"One\n\nTwo\n\nThree\n\n")])
def test_bytes_inside_a_frame_that_look_like_a_frame(tmp_path, planted):
    """Plant magic bytes, or a complete frame, in raw blocks: a range that begins before them must not be misled."""
    texts = [random_text(seed, 400) + planted + random_text(seed, 400) + b"\n\n" for seed in range(6)]
    stored = [zst(text, write_checksum=True) for text in texts]
    assert all(frame.rfind(planted) > 0 for frame in stored)
    path = tmp_path / "a.zst"
    path.write_bytes(b"".join(stored))
    options = ReadOptions("sentences", "latin-1")
    # The reader is called directly, since recognition of the format refuses binary data.
    read_lines = get_format("sentences").read_lines
    whole = list(read_lines(lines_of_stream(io.BytesIO(b"".join(texts)), "", "latin-1"), str(path), options, True))
    edges_at = len(stored[0] + stored[1]) + stored[2].rindex(planted)
    for cut in range(edges_at - 3, edges_at + len(planted) + 3):
        documents = []
        for start, stop in ((0, cut), (cut, None)):
            with open_lines(str(path), "latin-1", start, stop) as lines:
                documents += read_lines(lines, str(path), options, start == 0)
        assert without_positions(documents) == without_positions(whole)


# ---- Bytes read


class CountedReads:
    """A file that counts the bytes read from it, as an object store bills them."""

    total = 0

    def __init__(self, file) -> None:
        self._file = file

    def readinto(self, buffer) -> int:
        count = self._file.readinto(buffer)
        CountedReads.total += count
        return count

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.mark.parametrize("suffix", with_slow(["", ".bz2", ".zst"], [".bz2"]))
def test_a_range_reads_its_own_bytes(tmp_path, monkeypatch, suffix):
    parts = [
        b"".join(json_line(text=random_text(1000 * n + m, 99).hex(), n=m) + b"\n" for m in range(900))
        for n in range(60)
    ]
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](parts))
    size = path.stat().st_size
    assert size > 4 << 20
    start, stop = size // 2, size // 2 + (256 << 10)
    opened = readers.open_stored

    @contextlib.contextmanager
    def counted(path, buffer_bytes):
        with opened(path, buffer_bytes) as file:
            yield io.BufferedReader(CountedReads(file.raw), buffer_bytes)

    monkeypatch.setattr(readers, "open_stored", counted)
    assert list(read_file(str(path), ReadOptions(), start, stop))
    # A compressed range reads the head of the file, and its first frame and the one after it twice.
    assert (stop - start) // 2 < CountedReads.total < min(size, (stop - start) + (9 << 19))


# ---- Splits


def test_files_of_lines_are_split_by_name_and_size():
    size = 100 << 20
    for name, input_format, step in (
        ("a.jsonl", "auto", 16 << 20),
        ("wiki_00", "auto", 16 << 20),
        ("a.jsonl", "jsonl", 16 << 20),
        ("a.txt", "sentences", 16 << 20),
        ("a.txt", "bookcorpus", 16 << 20),
        ("a.xml", "sentences", 16 << 20),
        ("A.JSONL.BZ2", "jsonl", 2 << 20),
        ("a.jsonl.bz2", "auto", 2 << 20),
        ("a.jsonl.zst", "auto", 4 << 20),
        ("a.parquet", "auto", 16 << 20),
        ("A.parquet", "parquet", 16 << 20),
        ("a.xml", "wikipedia", 16 << 20),
        ("a.xml.bz2", "auto", 2 << 20),
    ):
        splits = split_file(name, size, ReadOptions(input_format))
        starts = [start for _, start, _ in splits]
        assert starts[0] == 0
        assert [stop for *_, stop in splits] == [*starts[1:], None], name
        sizes = [stop - start for start, stop in itertools.pairwise([*starts, size])]
        assert len(sizes) == math.ceil(size / step), name
        assert max(sizes) - min(sizes) <= 1, name
        assert len(split_file(name, size, ReadOptions(input_format), 50 << 20)) == 2
        assert split_file(name, step, ReadOptions(input_format)) == [(name, 0, None)]
    for name, input_format in (
        ("a.csv", "auto"),
        ("a.tsv.bz2", "auto"),
        ("a.jsonl.gz", "auto"),
        ("a.txt.xz", "sentences"),
        ("a.csv", "csv"),
        ("a.json", "json"),
        ("a.txt", "text"),
        ("a.xml.gz", "auto"),
        ("a.bz2", "text"),
        ("a.txt", "gutenberg"),
    ):
        assert split_file(name, size, ReadOptions(input_format)) == [(name, 0, None)], name
