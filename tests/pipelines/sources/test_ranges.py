"""Tests that the ranges of a file have the documents and line numbers of the file, for any boundaries."""

import bz2
import contextlib
import gzip
import io
import itertools
import json
import lzma
import random
import struct
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.corpus.reading import WHOLE_FILE, FileSplit, Input, SplitRead
from beambert.pipelines.corpus.split_reads import locate_splits
from beambert.pipelines.sources import ReadOptions, SourceError, frames, ranges, read_file, split_file
from beambert.pipelines.sources.plain_text import bookcorpus, sentences
from beambert.pipelines.sources.ranges import index_range
from beambert.pipelines.sources.readers import LINE_READERS, line_reader_of, read_range
from beambert.pipelines.sources.structured import fields
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


def located(
    path: str, options: ReadOptions, edges: list[tuple[int, int | None]], reader: str | None = None
) -> list[SplitRead]:
    """Find the starts of the ranges as the corpus job does: index each, then locate all.

    A given reader replaces the recognition of the format, which refuses binary data.
    """
    if reader is None:
        reader = ""
        with contextlib.suppress(SourceError):
            reader = line_reader_of(path, options)
    indexed = []
    for start, stop in edges:
        try:
            index = index_range(path, options.encoding, reader, start, stop) if reader in LINE_READERS else None
        except SourceError:
            index = None
        indexed.append((FileSplit(Input(path, 0, 0, "", 1.0), start, stop), reader, index))
    return list(locate_splits(indexed[::-1]))


def by_index(path: str, options: ReadOptions, edges: list[tuple[int, int | None]]):
    """Read the ranges as the corpus job does."""
    for split, start in located(path, options, edges):
        if start == WHOLE_FILE:
            yield from read_file(path, options)
        elif start:
            yield from read_range(path, options, start, split.stop)


def by_prefix(path: str, options: ReadOptions, edges: list[tuple[int, int | None]]):
    """Read the ranges one by one, without an index."""
    for start, stop in edges:
        yield from read_file(path, options, start, stop)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges")


@pytest.fixture(scope="module", autouse=True)
def small_limits():
    """Limits that short content reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bookcorpus, "_MAX_BOOK_SENTENCES", 3)
        patch.setattr(fields, "_MAX_RECORDS_WITHOUT_FIELD", 5)
        yield


@contextlib.contextmanager
def chunks_of(count: int) -> Iterator[None]:
    """Read chunks of a number of bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "CHUNK_BYTES", count)
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
        for read in (by_index, by_prefix):
            documents, error_of_ranges = outcome(read(str(path), options, edges))
            assert error_of_ranges == error
            # The first range may raise an error about the first records before the second one is read.
            assert documents == (whole[: len(documents)] if error else whole)


def plain_reference(content: bytes, max_lines: int) -> list[tuple[int, list[str]]]:
    """Return (line number, lines) of the documents between blank lines, from the text as one string."""
    text = content.decode("utf-8").removeprefix("\ufeff")
    # Before LF, CR is a part of the line end; elsewhere it is one itself.
    lines = [part for line in text.split("\n") for part in line.rstrip("\r").split("\r")]
    documents = []
    for is_blank, run in itertools.groupby(enumerate(lines, start=1), lambda pair: not pair[1].strip()):
        run = list(run)
        for start in range(0, 0 if is_blank else len(run), max_lines):
            part = run[start : start + max_lines]
            documents.append((part[0][0], [line for _, line in part]))
    return documents


@pytest.mark.parametrize(("name", "max_lines"), [("sentences", 10**9), ("bookcorpus", 3)])
@settings(max_examples=80)
@given(content=joined(SENTENCES, SENTENCES), cuts=CUTS, frames=CUTS, suffix=st.sampled_from(["", ".zst", ".bz2"]))
def test_ranges_equal_a_plain_reference(folder, name, max_lines, content, cuts, frames, suffix):
    stored = COMPRESSIONS[suffix](parts_of(content, frames))
    path = folder / f"reference{suffix}"
    path.write_bytes(stored)
    documents = list(by_index(str(path), ReadOptions(name), edges_of(cuts, len(stored))))
    assert [(document.line, document.paragraphs) for document in documents] == plain_reference(content, max_lines)


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
    for cut in range(1, len(stored)):
        assert list(by_index(str(path), options, [(0, cut), (cut, None)])) == whole, cut
    assert list(by_index(str(path), options, edges_of(list(range(len(stored))), len(stored)))) == whole


# ---- Frames


@pytest.mark.parametrize("suffix", [".bz2", ".zst", ".seekable.zst", ".pzstd.zst"])
def test_only_ranges_with_a_frame_have_documents(tmp_path, suffix):
    """Require that ranges without a frame are empty, and that no range reads the complete file instead."""
    parts = [b"".join(json_line(text=f"Document {n}-{m}.") + b"\n" for m in range(20)) for n in range(8)]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](parts))
    size = path.stat().st_size
    starts = [start for _, start in located(str(path), ReadOptions(), edges_of(list(range(0, size, 20)), size))]
    assert WHOLE_FILE not in starts
    assert [start.line for start in starts if start] == [1, *range(22, 161, 20)]


def test_a_frame_at_the_end_of_another_one(tmp_path):
    """End raw blocks with a valid frame: only the sequence of all frames shows that it is not a frame of the file."""
    texts = [random_text(seed, 400) + b"\n\n" + zst(b"One\n\nTwo\n\nThree\n\n") for seed in range(6)]
    stored = [zst(text) for text in texts]
    path = tmp_path / "a.zst"
    path.write_bytes(b"".join(stored))
    options = ReadOptions("sentences", "latin-1")
    assert all(frame[-40:] in text for frame, text in zip(stored, texts, strict=True))
    third = len(b"".join(stored[:3]))
    edges = [(0, third - 100), (third - 100, third + 100), (third + 100, None)]
    assert [start for _, start in located(str(path), options, edges, "sentences")] == [WHOLE_FILE, None, None]


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
    path.write_bytes(content)
    whole = outcome(read_file(str(path), ReadOptions()))
    assert "is not a complete" in whole[1]
    for count in (1, 2, 5, 40):
        edges = edges_of(list(range(0, len(content), len(content) // count)), len(content))
        assert outcome(by_index(str(path), ReadOptions(), edges)) == whole
        assert "is not a complete" in outcome(by_prefix(str(path), ReadOptions(), edges))[1] or count == 1


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
    whole = list(sentences.read_documents(io.BytesIO(b"".join(texts)), str(path), options))
    edges_at = len(stored[0] + stored[1]) + stored[2].rindex(planted)
    for cut in range(edges_at - 3, edges_at + len(planted) + 3):
        first, second = located(str(path), options, [(0, cut), (cut, None)], "sentences")
        if first.start == WHOLE_FILE:
            # The planted frame is valid, and only the data after it is not.
            assert second.start is None
            assert len(planted) > 10
            assert cut <= edges_at
            continue
        assert second.start.offset == len(stored[0] + stored[1] + stored[2])
        documents = [
            document
            for split, start in (first, second)
            for document in read_range(str(path), options, start, split.stop)
        ]
        assert documents == whole


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
    range_index = index_range(str(path), "utf-8", "jsonl", 0, start)
    range_start = ranges.RangeStart("jsonl", range_index.end, 1 + range_index.lines, 0)
    opened = ranges.open_stored

    @contextlib.contextmanager
    def counted(path, buffer_bytes):
        with opened(path, buffer_bytes) as file:
            yield io.BufferedReader(CountedReads(file.raw), buffer_bytes)

    monkeypatch.setattr(ranges, "open_stored", counted)
    for read in (
        lambda: index_range(str(path), "utf-8", "jsonl", start, stop),
        lambda: list(read_range(str(path), ReadOptions(), range_start, stop)),
    ):
        CountedReads.total = 0
        assert read()
        assert (stop - start) // 2 < CountedReads.total < (stop - start) + (2 << 20)


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
    ):
        splits = split_file(name, size, ReadOptions(input_format))
        assert [start for _, start, _ in splits] == list(range(0, size, step)), name
        assert [stop for *_, stop in splits] == [*range(step, size, step), None], name
        assert len(split_file(name, size, ReadOptions(input_format), 50 << 20)) == 2
        assert split_file(name, step, ReadOptions(input_format)) == [(name, 0, None)]
    for name, input_format in (
        ("a.csv", "auto"),
        ("a.tsv.bz2", "auto"),
        ("a.parquet", "auto"),
        ("a.jsonl.gz", "auto"),
        ("a.txt.xz", "sentences"),
        ("a.csv", "csv"),
        ("a.json", "json"),
        ("a.txt", "text"),
        ("a.txt", "gutenberg"),
    ):
        assert split_file(name, size, ReadOptions(input_format)) == [(name, 0, None)], name
