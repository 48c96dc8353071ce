"""TFRecord files and their tf.train.Example messages, without TensorFlow and Beam.

A record is its length (8 bytes), the checksum of the length (4 bytes), its content, and the checksum of the content
(4 bytes). Integers are little-endian. Source: tensorflow/core/lib/io/record_writer.h. The messages are defined in
tensorflow/core/example/example.proto and feature.proto. Lists may be packed or not.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from beambert.common.wire_format import FIXED32, LENGTH_DELIMITED, VARINT, masked_crc, raw_fields
from beambert.pipelines.errors import DatasetError

_HEADER = 12
_FOOTER = 4
# Larger than any example: a longer record is corrupt even if the checksum of its length matches.
_MAX_RECORD_BYTES = 1 << 28
# Field numbers of tf.train.Feature.
_BYTES_LIST_FIELD, _INT64_LIST_FIELD = 1, 3


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


def features_of(record: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the name of every feature of an example, in UTF-8, and its serialized tf.train.Feature in parts.

    Raises:
        ValueError: the message is not valid.
    """
    for features in _contents(record, 1):
        for entry in _contents(features, 1):
            yield (_contents(entry, 1) or [b""])[-1], _contents(entry, 2)


def lists_of(feature: list[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return the serialized BytesList, FloatList and Int64List messages of a feature.

    Raises:
        ValueError: the message is not valid.
    """
    lists: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    for part in feature:
        for field, kind, content in raw_fields(part):
            if kind == LENGTH_DELIMITED and _BYTES_LIST_FIELD <= field <= _INT64_LIST_FIELD:
                lists[field - _BYTES_LIST_FIELD].append(content)
    return lists


def floats(messages: list[bytes]) -> np.ndarray:
    """Return the values of FloatList messages: float32 [values].

    Raises:
        ValueError: a message is not valid.
    """
    contents = [content for message in messages for content in _list_contents(message, FIXED32)]
    if any(len(content) % 4 for content in contents):
        raise ValueError("a list of floats is incomplete")
    return np.frombuffer(b"".join(contents), "<f4").astype(np.float32)


def integers(messages: list[bytes]) -> np.ndarray:
    """Return the values of Int64List messages: int64 [values].

    Raises:
        ValueError: a message is not valid.
    """
    contents = [content for message in messages for content in _list_contents(message, VARINT)]
    if any(content[-1] >= 0x80 for content in contents if content):
        raise ValueError("a varint is incomplete")
    octets = np.frombuffer(b"".join(contents), np.uint8)
    is_last = octets < 0x80
    if is_last.all():
        return octets.astype(np.int64)
    starts = np.concatenate([[0], np.flatnonzero(is_last[:-1]) + 1])
    index = np.arange(len(octets)) - np.repeat(starts, np.diff(np.append(starts, len(octets))))  # within the varint
    if index.max() > 9:
        raise ValueError("a varint has more than 10 bytes")
    groups = (octets & 0x7F).astype(np.uint64) << (7 * index).astype(np.uint64)
    return np.add.reduceat(groups, starts).view(np.int64)


def _list_contents(message: bytes, single: int) -> list[bytes]:
    """Return the contents of the packed lists and of the single values, which have wire type `single`."""
    return [
        content for field, kind, content in raw_fields(message) if field == 1 and kind in (LENGTH_DELIMITED, single)
    ]


def _contents(message: bytes, number: int) -> list[bytes]:
    """Return the contents of all submessages or strings with a field number."""
    return [content for field, kind, content in raw_fields(message) if field == number and kind == LENGTH_DELIMITED]
