"""Read a MediaWiki dump as published (`pages-articles.xml`, plain or compressed), with one document per article.

`dump_pages.py` finds pages from any position in a file. A `.bz2` file is read stream by stream. A multistream dump has
streams of 100 pages, each starting with the same ten bytes, so several workers can read a file without its index.
"""

import io
import logging
import lzma
import re
from collections.abc import Iterator
from typing import BinaryIO

from beambert.pipelines.documents import Document
from beambert.pipelines.formats.frames import CHUNK_BYTES, find_frame, plain_chunks, read_bz2, read_head
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.wikipedia.dump_pages import HEADER_BYTES, Chunk, is_dump, read_pages, read_site

# Read size for a decompressor, small because at a truncation it drops the data of the current read.
_SMALL_CHUNK_BYTES = 4 << 10
# The start of a stream with data, or of an empty stream.
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_STREAM_BYTES = 10

_warn = logging.getLogger("beambert").warning


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per page of a decompressed dump; pages other than articles are rejected.

    A truncated dump is read up to its end, with a warning.

    Raises:
        SourceError: The stream is not a dump.
    """
    head = b""
    while len(head) < HEADER_BYTES and (data := stream.read1(_SMALL_CHUNK_BYTES)):
        head += data
    yield from read_pages(_stream_chunks(stream, path, head), read_site(head, path), path, options.wikitext_extractor)


def _stream_chunks(stream: io.BufferedIOBase, path: str, head: bytes) -> Iterator[Chunk]:
    gathered = bytearray(head)
    try:
        while data := stream.read1(_SMALL_CHUNK_BYTES):
            gathered += data
            if len(gathered) >= CHUNK_BYTES:
                yield bytes(gathered), True
                gathered.clear()
    except (OSError, EOFError, lzma.LZMAError) as error:
        _warn("%s is incomplete (%s); read up to there", path, error)
    yield bytes(gathered), True


def read_range(file: BinaryIO, path: str, options: ReadOptions, start: int, stop: int | None) -> Iterator[Document]:
    """Yield the documents of the pages that begin in a range of a dump, `.bz2` or uncompressed.

    Args:
        file: The file as stored.
        path: Its path.
        options: Options of reading.
        start, stop: Byte range of the file as stored; None is the end of the file. A page is in the range that contains
            its `<page>`, or in a `.bz2` file the start of its stream. Each page is in exactly one range, regardless of
            the sizes of the ranges.

    Raises:
        SourceError: The file is not a dump.
    """
    site = read_site(read_head(file, path, HEADER_BYTES, is_dump), path)
    if _is_bz2(path):
        yield from read_pages(_bz2_chunks(file, path, start, stop), site, path, options.wikitext_extractor)
    else:
        chunks = plain_chunks(file, start, stop)
        yield from read_pages(chunks, site, path, options.wikitext_extractor)


def _is_bz2(path: str) -> bool:
    return path.lower().endswith(".bz2")


def _bz2_chunks(file: BinaryIO, path: str, start: int, stop: int | None) -> Iterator[Chunk]:
    """Yield the streams that begin in a split, then those after it, for a page that continues there.

    Ten bytes that look like the start of a stream may occur inside one. A split whose search finds such bytes fails to
    decompress them and continues the search. The split in which the true stream begins never searches inside it.
    """
    position = _find_stream(file, start, stop)
    while position is not None:
        in_split = stop is None or position < stop
        if not in_split:
            yield b"", False
        file.seek(position)
        try:
            for chunk in read_bz2(file):
                yield chunk, in_split
        except (OSError, EOFError) as error:
            _warn("%s: the stream at byte %d is corrupt (%s); read up to there", path, position, error)
            yield None, in_split
            position = _find_stream(file, position + 1, stop)
            continue
        position = file.tell()
        following = file.read(_STREAM_BYTES)
        if not following:
            return
        if not _STREAM.match(following):
            _warn("%s: the bzip2 stream expected at byte %d is missing; continued with the next stream", path, position)
            yield None, in_split
            position = _find_stream(file, position, stop)


def _find_stream(file: BinaryIO, start: int, stop: int | None) -> int | None:
    """Return the first offset in [start, stop) with the bytes of a stream's start, or None."""
    return find_frame(file, _STREAM, _STREAM_BYTES, start, stop)


# A stream of a multistream dump has about 0.25 MB.
WIKIPEDIA = InputFormat(
    name="wikipedia",
    recognize=lambda _stem, head: is_dump(head),
    read=read_documents,
    read_range=read_range,
    range_bytes={".bz2": 2 << 20, ".xml": 16 << 20},
    suffixes=(".xml",),
    has_language=True,
    reports_other_kinds=True,
)
