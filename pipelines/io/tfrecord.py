"""Read and write the framing of TFRecord files without TensorFlow and Beam: lengths, contents and checksums.

A record is its length (8 bytes), the checksum of the length (4 bytes), its content, and the checksum of the content
(4 bytes). Integers are little-endian. Source: tensorflow/core/lib/io/record_writer.h.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from beambert.common.wire_format import masked_crc
from beambert.pipelines.errors import DatasetError

_HEADER = 12
_FOOTER = 4
# Larger than any example: a longer record is corrupt even if the checksum of its length matches.
_MAX_RECORD_BYTES = 1 << 28


class Frames(NamedTuple):
    """The positions of the records of a file.

    Attributes:
        offsets: Byte offset of each record; its content starts 12 bytes later.
        lengths: Bytes of content of each record.
        lost_at: Byte offset of the first invalid header, after which no record can be found; None for a complete file.
    """

    offsets: list[int]
    lengths: list[int]
    lost_at: int | None


def framed(content: bytes) -> bytes:
    """Return a record: a content with its length and both checksums."""
    length = struct.pack("<Q", len(content))
    return b"".join([length, struct.pack("<I", masked_crc(length)), content, struct.pack("<I", masked_crc(content))])


def find_records(content: bytes) -> Frames:
    """Find the records of a file in memory; only the checksums of the lengths are verified."""
    offsets: list[int] = []
    lengths: list[int] = []
    known: dict[bytes, int | None] = {}  # Few distinct lengths occur, so few checksums are computed.
    offset, lost_at = 0, None
    while offset < len(content):
        header = content[offset : offset + _HEADER]
        length = known.get(header)
        if length is None:
            length = known[header] = _length(header)
        if length is None or offset + _HEADER + length + _FOOTER > len(content):
            lost_at = offset
            break
        offsets.append(offset)
        lengths.append(length)
        offset += _HEADER + length + _FOOTER
    return Frames(offsets, lengths, lost_at)


def content_at(content: bytes, offset: int, length: int) -> bytes | None:
    """Return the content of a record of `find_records`, or None if its checksum differs."""
    start = offset + _HEADER
    record = content[start : start + length]
    (checksum,) = struct.unpack_from("<I", content, start + length)
    return record if masked_crc(record) == checksum else None


def read_records(file: IO[bytes] | gzip.GzipFile, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, content) of every record of a stream; both checksums are verified.

    Args:
        file: Decompressed stream at its beginning.
        path: Path of the file, for messages.

    Raises:
        DatasetError: The file is corrupt, or not a TFRecord file.
    """
    offset = 0
    while True:
        header = _read(file, _HEADER, path, offset)
        if not header:
            return
        length = _length(header)
        if len(header) == _HEADER and length is None:
            problem = (
                "not a TFRecord file; give a shard" if not offset else "the file is corrupt; copy it or build it again"
            )
            raise DatasetError(f"{path}: the record length at byte {offset} does not match its checksum: {problem}")
        body = b"" if length is None else _read(file, length + _FOOTER, path, offset)
        if length is None or len(body) < length + _FOOTER:
            raise DatasetError(
                f"{path} ends within the record at byte {offset}: the file is truncated; copy it or build it again"
            )
        if masked_crc(body[:length]) != struct.unpack("<I", body[length:])[0]:
            raise DatasetError(
                f"{path}: the record at byte {offset} does not match its checksum: the file is corrupt; copy it or "
                "build it again"
            )
        yield offset, body[:length]
        offset += _HEADER + length + _FOOTER


def _length(header: bytes) -> int | None:
    """Return the length in a record's header, or None if it is incomplete or its checksum differs."""
    if len(header) < _HEADER:
        return None
    length, checksum = struct.unpack("<QI", header)
    return length if masked_crc(header[:8]) == checksum and length <= _MAX_RECORD_BYTES else None


def _read(file: IO[bytes] | gzip.GzipFile, size: int, path: str, offset: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(
            f"{path} cannot be read after byte {offset} of its content ({error}): the file is corrupt or truncated; "
            "copy it or build it again"
        ) from error
