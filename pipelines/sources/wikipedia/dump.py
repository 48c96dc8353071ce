"""A MediaWiki dump (`pages-articles.xml`, plain or compressed) as published: a document an article.

Pages are found by `dump_pages.py`, from any place in a file on. A `.bz2` file is read by stream: a multistream
dump holds one of 100 pages after the other, each starting with the same ten bytes, so that several workers read one
file without its index.
"""

import bz2
import io
import logging
import lzma
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from pipelines.errors import SourceError
from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions
from pipelines.sources.wikipedia.dump_pages import HEADER_BYTES, Piece, is_dump, read_pages, site_of

# Bytes of a part of a file; a stream of a multistream dump has about a quarter of a megabyte.
PART_BYTES = {".bz2": 2 << 20, ".xml": 16 << 20}

_CHUNK_BYTES = 256 << 10
# Read at once from a decompressor that, where its file is cut, keeps back what it has begun.
_DAMAGE_BYTES = 4 << 10
# A stream with data starts with the first, one without with the second.
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_STREAM_BYTES = 10

_warn = logging.getLogger("beambert").warning


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:  # noqa: ARG001
    """Yield a document for each page of a decompressed dump; pages that are no articles are marked as rejected.

    What is cut short is read as far as it goes, with a warning.

    Raises:
        SourceError: not a dump.
    """
    head = b""
    while len(head) < HEADER_BYTES and (data := stream.read1(_DAMAGE_BYTES)):
        head += data
    yield from read_pages(_stream_pieces(stream, path, head), site_of(head, path), path)


def _stream_pieces(stream: io.BufferedIOBase, path: str, head: bytes) -> Iterator[Piece]:
    gathered = bytearray(head)
    try:
        while data := stream.read1(_DAMAGE_BYTES):
            gathered += data
            if len(gathered) >= _CHUNK_BYTES:
                yield bytes(gathered), True
                gathered.clear()
    except (OSError, EOFError, lzma.LZMAError) as error:
        _warn("%s is not whole (%s); read as far as it goes", path, error)
    yield bytes(gathered), True


def can_split(path: str) -> bool:
    """Return whether splits of the file can be read, by its name."""
    return path.lower().endswith(tuple(PART_BYTES))


def split(path: str, size: int) -> list[tuple[int, int | None]]:
    """Return the splits (start, stop) of a file of N bytes for `read_shard`; one where it cannot be split."""
    step = next((step for suffix, step in PART_BYTES.items() if path.lower().endswith(suffix)), 0)
    if not step:
        return [(0, None)]
    return [(start, start + step if start + step < size else None) for start in range(0, max(size, 1), step)]


def read_shard(path: str, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """Yield the documents of the pages that begin in one split of a dump, `.bz2` or not compressed.

    Args:
        path: on any Beam filesystem.
        start, stop: bytes of the file as it is stored; None is its end. A page belongs to the part that holds its
            `<page>`; in a `.bz2` file, to the part that holds the start of that stream. Whatever the parts, each page
            is in one of them.

    Raises:
        SourceError: the file cannot be opened, or is no dump.
    """
    with _open(path) as file:
        site = site_of(_head(file, path), path)
        if _is_bz2(path):
            yield from read_pages(_bz2_pieces(file, path, start, stop), site, path)
        elif site.encoding == "utf-8" or not start:
            last = stop if site.encoding == "utf-8" else None
            yield from read_pages(_plain_pieces(file, start, last), site, path)


def read_head(path: str) -> bytes:
    """Return the first bytes of a file that can be split, decompressed; enough for `is_dump`.

    Raises:
        SourceError: the file cannot be opened or decompressed.
    """
    with _open(path) as file:
        return _head(file, path)


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as opened:
            yield io.BufferedReader(opened, 2 * _CHUNK_BYTES)
    except (BeamIOError, OSError) as error:
        raise SourceError(
            f"{path} cannot be opened or read ({error}); check that it exists and that you may read it"
        ) from error


def _is_bz2(path: str) -> bool:
    return path.lower().endswith(".bz2")


def _head(file: BinaryIO, path: str) -> bytes:
    if not _is_bz2(path):
        return file.read(HEADER_BYTES)
    decompressor = bz2.BZ2Decompressor()
    head = data = b""
    try:
        # The first stream of a multistream dump holds the head and nothing else.
        while len(head) < HEADER_BYTES and (data := data or file.read(_CHUNK_BYTES)):
            head += decompressor.decompress(data, HEADER_BYTES)
            data = b""
            if decompressor.eof:
                if is_dump(head):
                    break
                data, decompressor = decompressor.unused_data, bz2.BZ2Decompressor()
    except OSError as error:
        if not head:
            raise SourceError(
                f"{path} is not a whole .bz2 file ({error}); fetch it again or leave it out of --input"
            ) from error
    return head


def _plain_pieces(file: BinaryIO, start: int, stop: int | None) -> Iterator[Piece]:
    file.seek(start)
    left = stop - start if stop is not None else None
    while left is None or left > 0:
        data = file.read(_CHUNK_BYTES if left is None else min(_CHUNK_BYTES, left))
        if not data:
            return
        left = None if left is None else left - len(data)
        yield data, True
    while data := file.read(_CHUNK_BYTES):
        yield data, False


def _bz2_pieces(file: BinaryIO, path: str, start: int, stop: int | None) -> Iterator[Piece]:
    """Yield the streams that begin in a split, then those after it, for a page that continues there.

    Ten bytes that look like the start of a stream need not be one. A part whose search falls for such bytes fails to
    decompress them and searches on; the part that the true stream begins in never searches inside it.
    """
    position = _find_stream(file, start, stop)
    while position is not None:
        ours = stop is None or position < stop
        if not ours:
            yield b"", False
        decompressor = bz2.BZ2Decompressor()
        file.seek(position)
        end = position
        damage = ""
        while not (decompressor.eof or damage):
            data = file.read(_CHUNK_BYTES) if decompressor.needs_input else b""
            end += len(data)
            if not data and decompressor.needs_input:
                damage = "the file ends inside it"
                break
            try:
                piece = decompressor.decompress(data, 16 * _CHUNK_BYTES)
            except OSError as error:
                damage = str(error)
            else:
                yield piece, ours
        if damage:
            _warn("%s: the stream at byte %d is damaged (%s); read as far as it goes", path, position, damage)
            yield None, ours
            position = _find_stream(file, position + 1, stop)
            continue
        end -= len(decompressor.unused_data)
        file.seek(end)
        following = file.read(_STREAM_BYTES)
        if not following:
            return
        position = end
        if not _STREAM.match(following):
            _warn("%s: no bzip2 stream at byte %d, where the last one ends; read on from the next", path, end)
            yield None, ours
            position = _find_stream(file, end, stop)


def _find_stream(file: BinaryIO, start: int, stop: int | None) -> int | None:
    """Return the first offset in [start, stop) where a stream seems to start."""
    file.seek(start)
    position, window = start, b""
    while (stop is None or position < stop) and (data := file.read(_CHUNK_BYTES)):
        window += data
        match = _STREAM.search(window)
        if match:
            place = position + match.start()
            return place if stop is None or place < stop else None
        keep = min(_STREAM_BYTES - 1, len(window))
        position += len(window) - keep
        window = window[len(window) - keep :]
    return None
