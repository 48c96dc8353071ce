"""Read the lines of a byte range of a file, plain or compressed, without the bytes before it."""

from collections.abc import Iterator
from contextlib import contextmanager

from beambert.pipelines.formats.frames import CHUNK_BYTES, FrameError, FrameReader, codec_of, find_frame, plain_chunks
from beambert.pipelines.formats.lines import Line, lines_of_chunks
from beambert.pipelines.sources.files import not_complete, open_stored

# A compressed file is split if its second frame is in these first bytes; the tools that write frames make smaller ones.
_MAX_FRAME_BYTES = 16 << 20


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


@contextmanager
def open_lines(path: str, encoding: str, start: int, stop: int | None) -> Iterator[Iterator[Line]]:
    """Open a file and return the lines of a range, then those after it.

    Args:
        path: A path on any Beam filesystem.
        encoding: Encoding of the file.
        start, stop: Byte range of the file as stored; None is the end of the file.

    Raises:
        SourceError: The file cannot be read, is corrupt, or is UTF-16 or UTF-32.
    """
    codec = codec_of(path)
    try:
        with open_stored(path, 2 * CHUNK_BYTES) as file:
            if codec is None:
                yield lines_of_chunks(plain_chunks(file, start, stop, CHUNK_BYTES), path, encoding, start)
            else:
                frames = FrameReader(file, codec)
                chunks = frames.chunks(start, stop)
                yield lines_of_chunks(chunks, path, encoding, start, lambda: frames.frame)
    except FrameError as error:
        raise not_complete(path, error) from error
