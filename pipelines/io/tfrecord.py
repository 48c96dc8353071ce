"""The framing of TFRecord files, read without TensorFlow and without Beam: lengths, contents, checksums.

A record is its length (8 bytes), the length's checksum (4), its content and the content's checksum (4), all of them
little-endian: tensorflow/core/lib/io/record_writer.h.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import google_crc32c

from pipelines.errors import DatasetError

_HEADER = 12
_FOOTER = 4
# Larger than any example; a length beyond it is corruption that its checksum did not show.
_LARGEST_RECORD = 1 << 28


class Frames(NamedTuple):
    """The places of the records of a file.

    Attributes:
        offsets: of each, where it begins; its content is 12 bytes further on.
        lengths: of each, bytes of its content.
        lost_at: where no record could be made out, so that none after it can be found; None if the file ends whole.
    """

    offsets: list[int]
    lengths: list[int]
    lost_at: int | None


def masked_crc(data: bytes) -> int:
    """Return TFRecord's checksum: CRC-32C, rotated and offset (tensorflow/core/lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def find_records(content: bytes) -> Frames:
    """Find the records of a whole file in memory; only the checksums of their lengths are compared."""
    offsets: list[int] = []
    lengths: list[int] = []
    known: dict[bytes, int | None] = {}  # Records have similar lengths: few lengths have to be checked.
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
    """Return the content of a record that `find_records` found, or None if its checksum differs."""
    start = offset + _HEADER
    record = content[start : start + length]
    (checksum,) = struct.unpack_from("<I", content, start + length)
    return record if masked_crc(record) == checksum else None


def read_records(file: IO[bytes] | gzip.GzipFile, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield (start offset, content) of every record of a stream; both checksums are compared.

    Args:
        file: at its beginning, decompressed.
        path: what to call it in messages.

    Raises:
        DatasetError: the file is damaged, or no TFRecord file.
    """
    offset = 0
    while True:
        header = _read(file, _HEADER, path, offset)
        if not header:
            return
        length = _length(header)
        if len(header) == _HEADER and length is None:
            problem = (
                "it is no TFRecord file; give a shard" if not offset else "the file is damaged; copy or build it again"
            )
            raise DatasetError(f"{path}: the length at byte {offset} does not fit its checksum: {problem}")
        body = b"" if length is None else _read(file, length + _FOOTER, path, offset)
        if length is None or len(body) < length + _FOOTER:
            raise DatasetError(
                f"{path} ends within the record at byte {offset}: it is truncated; copy it or build it again"
            )
        if masked_crc(body[:length]) != struct.unpack("<I", body[length:])[0]:
            raise DatasetError(
                f"{path}: the record at byte {offset} does not fit its checksum: the file is damaged; copy it or build "
                "it again"
            )
        yield offset, body[:length]
        offset += _HEADER + length + _FOOTER


def _length(header: bytes) -> int | None:
    """Return the length in a record's header, or None if it is incomplete or its checksum differs."""
    if len(header) < _HEADER:
        return None
    length, checksum = struct.unpack("<QI", header)
    return length if masked_crc(header[:8]) == checksum and length <= _LARGEST_RECORD else None


def _read(file: IO[bytes] | gzip.GzipFile, size: int, path: str, offset: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(
            f"{path} cannot be read on behind byte {offset} of its content ({error}): it is damaged or truncated; copy "
            "it or build it again"
        ) from error
