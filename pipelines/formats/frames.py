"""Read a range of a file as stored: plain, or the bzip2 streams or zstandard frames that begin in the range.

A frame is found by its magic bytes, which may also occur inside a frame. So a search counts only if everything from
there on is valid: the frame decompresses, and the next one begins where it ends.
"""

import bz2
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import BinaryIO, NamedTuple

import zstandard

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.lines import Chunk

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst", ".xz")
CHUNK_BYTES = 256 << 10
# `zstd --long=31`. A frame needs memory for its window, and at most for its text.
_LARGEST_ZST_WINDOW = 1 << 31
_LARGEST_ZST_HEADER = 18
_ZST_BLOCK_HEADER = 3
_ZST_REPEATED_BYTE = 1
_BZ2_OUTPUT_BYTES = 4 << 20
# Most members are small, and a file moves back to the end of each of them.
_GZ_INPUT_BYTES = 16 << 10
# Length of the longest start of a frame.
MAGIC_BYTES = 10
# A frame of zstandard without text, such as the table of the seekable format: its magic and its length.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18(....)", re.DOTALL)
_NOTHING = re.compile(rb"(?!)")


class FrameError(Exception):
    """A compressed file has no valid frame where one is expected.

    Attributes:
        offset: Offset of the frame in the file.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset


class Codec(NamedTuple):
    """A compression whose frames can be read separately.

    Attributes:
        magic: Pattern of the start of a frame with text, which matches at most `MAGIC_BYTES`.
        skippable: Pattern of the header of a frame to skip, with its length in group 1.
        read_frame: Yields the output of the frame at the position of a file, in blocks whose size does not depend on
            the file, and leaves the file at the end of the frame.
        error: Exception for corrupt data.
    """

    magic: re.Pattern[bytes]
    skippable: re.Pattern[bytes]
    read_frame: Callable[[BinaryIO], Iterator[bytes]]
    error: type[Exception]


def read_bz2(file: BinaryIO) -> Iterator[bytes]:
    """Yield the output of the stream at the position of a file in blocks, and leave the file at the end of the stream.

    Raises:
        EOFError: The stream is truncated.
        OSError: It is corrupt.
    """
    decompressor = bz2.BZ2Decompressor()
    while not decompressor.eof:
        data = file.read(CHUNK_BYTES) if decompressor.needs_input else b""
        if decompressor.needs_input and not data:
            raise EOFError("the file ends within it")
        yield decompressor.decompress(data, _BZ2_OUTPUT_BYTES)
    file.seek(-len(decompressor.unused_data), os.SEEK_CUR)


def read_gz(file: BinaryIO) -> Iterator[bytes]:
    """Yield the output of the gzip member at the position of a file in blocks, and leave the file at its end.

    Raises:
        EOFError: The member is truncated.
        zlib.error: It is corrupt.
    """
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    data = b""
    while not decompressor.eof:
        data = decompressor.unconsumed_tail or file.read(_GZ_INPUT_BYTES)
        if not data:
            raise EOFError("the file ends within it")
        yield decompressor.decompress(data, CHUNK_BYTES)
    file.seek(-len(decompressor.unused_data), os.SEEK_CUR)


def _read_zst(file: BinaryIO) -> Iterator[bytes]:
    # python-zstandard returns all output of its input at once, up to 30,000 times as much, so it gets block after block
    # (RFC 8878, section 3.1.1). A block has at most 128 KiB of text.
    start = file.tell()
    data = file.read(_LARGEST_ZST_HEADER)
    checksum_bytes = 4 * zstandard.get_frame_parameters(data).has_checksum
    data = data[: zstandard.frame_header_size(data)]
    file.seek(start + len(data))
    decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_ZST_WINDOW).decompressobj()
    while not decompressor.eof:
        header = file.read(_ZST_BLOCK_HEADER)
        if not header:
            raise EOFError
        fields = int.from_bytes(header, "little")
        is_last, kind, size = fields & 1, fields >> 1 & 3, fields >> 3
        stored_bytes = 1 if kind == _ZST_REPEATED_BYTE else size
        yield decompressor.decompress(data + header + file.read(stored_bytes + is_last * checksum_bytes))
        data = b""


# Codecs by suffix. Streams of bzip2 without text are left out: Arrow, which reads whole files, rejects them.
CODECS = {
    ".bz2": Codec(re.compile(rb"BZh[1-9]1AY&SY"), _NOTHING, read_bz2, OSError),
    ".zst": Codec(re.compile(rb"\x28\xb5\x2f\xfd"), _SKIPPABLE, _read_zst, zstandard.ZstdError),
}

# Members of gzip are read separately by formats that recognize their first bytes: two bytes are no magic.
GZIP = Codec(re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"), _NOTHING, read_gz, zlib.error)


def compression_of(path: str) -> str:
    """Return the suffix of a compressed file, such as ".gz", or "" for a file that is not compressed."""
    return next((suffix for suffix in COMPRESSED_SUFFIXES if path.lower().endswith(suffix)), "")


def stem_of(name: str) -> str:
    """Return the lowercase name of a file without compression suffixes."""
    stem = name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        stem = stem.removesuffix(suffix)
    return stem


def codec_of(path: str) -> Codec | None:
    """Return the codec of a file by its suffix, or None for a file that is read as stored."""
    return CODECS.get(compression_of(path))


def read_head(file: BinaryIO, path: str, size: int, is_enough: Callable[[bytes], bool] = lambda _: False) -> bytes:
    """Return the first bytes of a file that is not compressed or is bzip2, even if the rest of it is corrupt.

    Args:
        file: The file as stored.
        path: Its path.
        size: Number of bytes, decompressed.
        is_enough: Whether the bytes of the first streams of bzip2 suffice. A stream of a Wikipedia dump has only its
            head.

    Raises:
        SourceError: Nothing can be decompressed.
    """
    if compression_of(path) != ".bz2":
        return file.read(size)
    decompressor = bz2.BZ2Decompressor()
    head = data = b""
    try:
        while len(head) < size and (data := data or file.read(CHUNK_BYTES)):
            head += decompressor.decompress(data, size)
            data = b""
            if decompressor.eof:
                if is_enough(head):
                    break
                data, decompressor = decompressor.unused_data, bz2.BZ2Decompressor()
    except OSError as error:
        if not head:
            raise SourceError(
                f"{path} is not a complete .bz2 file ({error}); download it again or leave it out of --input"
            ) from error
    return head


def find_frame(file: BinaryIO, magic: re.Pattern[bytes], start: int, stop: int | None) -> int | None:
    """Return the first offset in [start, stop) with the magic bytes of a frame, or None.

    Args:
        file: The file as stored.
        magic: Pattern of the start of a frame, which matches at most `MAGIC_BYTES`.
        start, stop: Range of the search; None is the end of the file.
    """
    file.seek(start)
    position, window = start, b""
    while (stop is None or position < stop) and (data := file.read(CHUNK_BYTES)):
        window += data
        match = magic.search(window)
        if match:
            offset = position + match.start()
            return offset if stop is None or offset < stop else None
        keep = min(MAGIC_BYTES - 1, len(window))
        position += len(window) - keep
        window = window[len(window) - keep :]
    return None


def plain_chunks(file: BinaryIO, start: int, stop: int | None) -> Iterator[Chunk]:
    """Yield the bytes of a range of a file that is not compressed, then those after it."""
    file.seek(start)
    left = stop - start if stop is not None else None
    while left is None or left > 0:
        data = file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not data:
            return
        left = None if left is None else left - len(data)
        yield data, True
    while data := file.read(CHUNK_BYTES):
        yield data, False


class FrameReader:
    """Read the frames of a compressed file in order.

    Args:
        file: The file as stored.
        codec: Its compression.

    Attributes:
        frame: Offset of the frame of the last chunk.
    """

    def __init__(self, file: BinaryIO, codec: Codec) -> None:
        self._file = file
        self._codec = codec
        self.frame = 0

    def chunks(self, start: int, stop: int | None) -> Iterator[Chunk]:
        """Yield the decompressed bytes of the frames that begin in [start, stop), then of those after them.

        The first frame after the range is verified, since the range in which it begins would search for another one.

        Args:
            start: Start of the range; 0, or any offset.
            stop: End of the range; None is the end of the file.

        Raises:
            FrameError: A frame is corrupt or truncated, or other data follows it.
        """
        offset = self._find_valid_frame(start, stop) if start else self.data_frame(0)
        in_range = True
        while offset is not None:
            if in_range and stop is not None and offset >= stop:
                in_range = False
                self._verify(offset)
                yield b"", False
            end = yield from self._frame(offset, in_range)
            offset = self.data_frame(end)

    def _find_valid_frame(self, start: int, stop: int | None) -> int | None:
        """Return the first frame that begins in [start, stop), or None."""
        offset = find_frame(self._file, self._codec.magic, start, stop)
        while offset is not None:
            try:
                self._verify(offset)
            except FrameError:
                # Bytes inside a frame may look like the start of one.
                offset = find_frame(self._file, self._codec.magic, offset + 1, stop)
            else:
                return offset
        return None

    def _verify(self, offset: int) -> None:
        """Raise FrameError unless a valid frame begins at an offset, and another one or nothing follows it."""
        frame = self._frame(offset, True)
        while True:
            try:
                next(frame)
            except StopIteration as end:
                self.data_frame(end.value)
                return

    def data_frame(self, offset: int) -> int | None:
        """Return the offset of the first frame with text from the frame at `offset` on, or None at the end of the file.

        Raises:
            FrameError: There is no frame.
        """
        while True:
            self._file.seek(offset)
            header = self._file.read(MAGIC_BYTES)
            if not header:
                return None
            if self._codec.magic.match(header):
                return offset
            skippable = self._codec.skippable.match(header)
            if skippable is None:
                raise FrameError(offset, "data after the end of a frame")
            following = offset + skippable.end() + int.from_bytes(skippable[1], "little")
            self._file.seek(following - 1)
            if not self._file.read(1):
                raise FrameError(offset, "truncated frame")
            offset = following

    def _frame(self, offset: int, in_range: bool) -> Generator[Chunk, None, int]:
        """Yield the decompressed bytes of the frame at `offset`, and return the offset of its end."""
        self.frame = offset
        self._file.seek(offset)
        try:
            for output in self._codec.read_frame(self._file):
                yield output, in_range
        except EOFError as error:
            raise FrameError(offset, "truncated frame") from error
        except self._codec.error as error:
            raise FrameError(offset, str(error)) from error
        return self._file.tell()
