"""Read the lines of a byte range of a file, and find what a range must know about the bytes before it.

`index_range` counts the lines of one range, for all ranges in parallel. `locate_ranges` adds up the counts of a file.
So each range is read with the line numbers of the file, and without the rest of a document of an earlier range.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from beambert.pipelines.sources.files import not_complete, open_stored
from beambert.pipelines.sources.frames import CHUNK_BYTES, FrameError, FrameReader, codec_of, find_frame, plain_chunks
from beambert.pipelines.sources.lines import Chunk, Line, RangeStart, lines_of_chunks, split_at_cr

# Formats whose documents are runs of lines between blank lines.
RUN_READERS = ("sentences", "bookcorpus")
# A compressed file is split if its second frame is in these first bytes; the tools that write frames make smaller ones.
_MAX_FRAME_BYTES = 16 << 20


class RangeIndex(NamedTuple):
    """The lines of a range, for the numbers of the lines after it.

    Attributes:
        first: Offset of its first byte, in a compressed file of its first frame; None if it has no frame.
        end: Offset of the first byte or frame after it; None at the end of the file.
        lines: Number of its lines.
        has_blank: Whether one of its lines is blank; only counted for `RUN_READERS`.
        run: Number of its lines after the last blank one, as above.
    """

    first: int | None
    end: int | None
    lines: int = 0
    has_blank: bool = False
    run: int = 0


def has_frames(path: str) -> bool:
    """Return whether ranges of a file can be read: it is not compressed, or its second frame is near its start.

    Raises:
        SourceError: The file cannot be opened.
    """
    codec = codec_of(path)
    if codec is None:
        return not path.lower().endswith((".gz", ".xz"))
    with open_stored(path, 2 * CHUNK_BYTES) as file:
        return find_frame(file, codec.magic, codec.magic_bytes, 1, _MAX_FRAME_BYTES, CHUNK_BYTES) is not None


def index_range(path: str, encoding: str, reader: str, start: int, stop: int | None) -> RangeIndex:
    """Return the number of lines of a range and, in a compressed file, its frames.

    Args:
        path: A path on any Beam filesystem.
        encoding: Encoding of the file.
        reader: Name of the reader of its lines.
        start, stop: Byte range of the file as stored; None is the end of the file.

    Raises:
        SourceError: The file cannot be read, or is compressed and not a sequence of valid frames.
    """
    codec = codec_of(path)
    with _open(path) as file:
        if codec is None:
            chunks = plain_chunks(file, start, stop, CHUNK_BYTES)
            return RangeIndex(start, stop, *_count(chunks, path, encoding, reader, not start))
        frames = FrameReader(file, codec)

        def next_frame(offset: int) -> int | None:
            return find_frame(file, codec.magic, codec.magic_bytes, offset, stop, CHUNK_BYTES)

        first = next_frame(start) if start else frames.data_frame(0)
        while first is not None:
            try:
                counts = _count(frames.chunks(first, stop), path, encoding, reader, not start)
            except FrameError as error:
                # Bytes inside a frame may look like the start of one.
                if not start or error.offset != first:
                    raise
                first = next_frame(first + 1)
            else:
                return RangeIndex(first, frames.end, *counts)
    return RangeIndex(None, None)


def locate_ranges(reader: str, ranges: Sequence[tuple[int | None, RangeIndex]]) -> list[RangeStart | None] | None:
    """Return where the reading of each range of a file starts; None for a range without frames.

    Args:
        reader: Name of the reader of the lines.
        ranges: (stop, index) of all ranges of a file in order, from its start.

    Returns:
        One item per range; or None if the frames of the ranges are not the sequence of frames of the file.
    """
    starts: list[RangeStart | None] = []
    offset, line, run = ranges[0][1].first, 1, 0
    for stop, index in ranges:
        in_range = offset if offset is not None and (stop is None or offset < stop) else None
        if index.first != in_range:
            return None
        starts.append(None if in_range is None else RangeStart(reader, in_range, line, run))
        if in_range is not None:
            offset = index.end
            line += index.lines
            run = index.run if index.has_blank else run + index.run
    return starts


@contextmanager
def lines_of_range(path: str, encoding: str, start: RangeStart, stop: int | None) -> Iterator[Iterator[Line]]:
    """Open a file and return the lines of a range, then those after it.

    Args:
        path: A path on any Beam filesystem.
        encoding: Encoding of the file.
        start: Start of the range, from `locate_ranges`.
        stop: End of the range in the file as stored; None is the end of the file.

    Raises:
        SourceError: The file cannot be read, is corrupt, or is UTF-16 or UTF-32.
    """
    codec = codec_of(path)
    with _open(path) as file:
        if codec is None:
            chunks = plain_chunks(file, start.offset, stop, CHUNK_BYTES)
        else:
            chunks = FrameReader(file, codec).chunks(start.offset, stop)
        yield lines_of_chunks(chunks, start.line, path, encoding)


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    try:
        with open_stored(path, 2 * CHUNK_BYTES) as file:
            yield file
    except FrameError as error:
        raise not_complete(path, error) from error


def _count(
    chunks: Iterator[Chunk], path: str, encoding: str, reader: str, is_file_start: bool
) -> tuple[int, bool, int]:
    """Return the number of lines of a range, whether one is blank, and the number of those after the last blank one."""
    if reader not in RUN_READERS:
        lines = int(is_file_start)
        for data, in_range in chunks:
            if not in_range:
                break
            lines += data.count(b"\n")
        return lines, False, 0
    lines, has_blank, run = 0, False, 0
    # Any number other than that of the first line of the file.
    for line in split_at_cr(lines_of_chunks(chunks, 1 if is_file_start else 2, path, encoding)):
        if not line.in_range:
            break
        lines += 1
        is_blank = not line.content.decode(encoding, "replace").strip()
        has_blank = has_blank or is_blank
        run = 0 if is_blank else run + 1
    return lines, has_blank, run
