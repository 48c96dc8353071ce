"""Encode and decode the index of a tensor bundle: the dtype, shape, position and checksum of each tensor.

The index is a sorted table. Its first key is empty and has a BundleHeaderProto; the others are names of tensors and
have a BundleEntryProto (tensorflow/core/protobuf/tensor_bundle.proto).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from beambert.bert_model.checkpoints import sorted_table
from beambert.common.wire_format import bytes_field, fields, fixed32_field, varint_field

# Names of TensorFlow's dtypes by number (tensorflow/core/framework/types.proto), for arrays of whole bytes.
_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
_NUMBERS = {name: number for number, name in _DTYPES.items()}
DTYPE_NAMES = frozenset(_NUMBERS)
_STRING = 7
_HEADER_KEY = b""
_VERSION = 1
# Keys of the slices of partitioned variables begin with this byte.
_SLICE_PREFIX = b"\0"
# numpy's limit.
_MOST_DIMENSIONS = 64


class Header(NamedTuple):
    """The number of data files, and whether their numbers are big-endian."""

    num_shards: int = 1
    big_endian: bool = False


class Entry(NamedTuple):
    """A tensor of a bundle.

    Attributes:
        dtype: name of the dtype, one of `DTYPE_NAMES` or another one that cannot be read.
        shape: sizes.
        shard: number of the data file.
        offset: position of the first byte in the data file.
        size: number of bytes.
        crc: masked CRC-32C of the bytes.
        is_partitioned: whether the tensor is stored in slices with entries of their own.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    is_partitioned: bool = False


def numpy_dtype(name: str) -> np.dtype:
    """Return the dtype of a name, such as "float32" or "bfloat16"."""
    if name == "bfloat16":
        # numpy knows the name only after this import.
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def encode(entries: Mapping[str, Entry]) -> bytes:
    """Return the index of a bundle with one data file."""
    version = bytes_field(3, varint_field(1, _VERSION))
    table = {_HEADER_KEY: varint_field(1, 1) + version}
    table |= {name.encode(): _entry_bytes(entry) for name, entry in entries.items()}
    return sorted_table.encode(sorted(table.items()))


def decode(content: bytes) -> tuple[Header, dict[str, Entry]]:
    """Return the header, and the tensors by name, sorted by name.

    Raises:
        ValueError: the index is corrupt, or needs a newer reader; the message is the reason.
    """
    table = sorted_table.decode(content)
    if _HEADER_KEY not in table:
        raise ValueError("it has no header")
    header = _header(table.pop(_HEADER_KEY))
    return header, {
        key.decode(): _entry(value, header) for key, value in table.items() if not key.startswith(_SLICE_PREFIX)
    }


def _entry_bytes(entry: Entry) -> bytes:
    """Encode a BundleEntryProto."""
    shape = b"".join(bytes_field(2, varint_field(1, size)) for size in entry.shape)
    return b"".join(
        [
            varint_field(1, _NUMBERS[entry.dtype]),
            bytes_field(2, shape),
            varint_field(3, entry.shard),
            varint_field(4, entry.offset),
            varint_field(5, entry.size),
            fixed32_field(6, entry.crc),
        ]
    )


def _header(content: bytes) -> Header:
    """Decode a BundleHeaderProto."""
    num_shards, endianness, minimum_version = 0, 0, 0
    excluded_versions: list[int] = []
    for field, value in fields(content):
        if field == 1:
            num_shards = _integer(value)
        elif field == 2:
            endianness = _integer(value)
        elif field == 3:
            for version_field, version in fields(_message(value)):
                if version_field == 2:
                    minimum_version = _integer(version)
                elif version_field == 3:
                    excluded_versions += [version] if isinstance(version, int) else list(version)
    if minimum_version > _VERSION or _VERSION in excluded_versions:
        raise ValueError("it was written by a newer version of TensorFlow, whose format is unknown")
    return Header(num_shards, endianness == 1)


def _entry(content: bytes, header: Header) -> Entry:
    """Decode and check a BundleEntryProto."""
    numbers: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    is_partitioned = False
    for field, value in fields(content):
        if field == 2:
            shape += _shape(_message(value))
        elif field == 7:
            is_partitioned = True
        elif field in (1, 3, 4, 5, 6):
            numbers[field] = _integer(value)
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError(f"a tensor has more than {_MOST_DIMENSIONS} dimensions")
    number, shard, offset, size, crc = (numbers.get(field, 0) for field in (1, 3, 4, 5, 6))
    dtype = "string" if number == _STRING else _DTYPES.get(number, f"number {number}")
    if shard >= max(1, header.num_shards):
        raise ValueError(f"a tensor is in data file {shard} of {header.num_shards}")
    if dtype in DTYPE_NAMES and not is_partitioned and size != math.prod(shape) * numpy_dtype(dtype).itemsize:
        raise ValueError(f"a tensor has {size:,} bytes, which do not fit its shape")
    return Entry(dtype, shape, shard, offset, size, crc, is_partitioned)


def _shape(content: bytes) -> tuple[int, ...]:
    """Decode a TensorShapeProto."""
    sizes = []
    for field, value in fields(content):
        if field == 2:
            sizes.append(next((_integer(size) for number, size in fields(_message(value)) if number == 1), 0))
        elif field == 3 and value:
            raise ValueError("a tensor has no shape")
    return tuple(sizes)


def _integer(value: int | bytes) -> int:
    """Return a non-negative int64 of a message."""
    if isinstance(value, bytes) or value >= 1 << 63:
        raise ValueError("an entry has a field that is not a non-negative integer")
    return value


def _message(value: int | bytes) -> bytes:
    """Return an embedded message."""
    if isinstance(value, int):
        raise ValueError("an entry has a number in place of a message")
    return value
