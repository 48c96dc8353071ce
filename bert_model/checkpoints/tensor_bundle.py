"""Read and write tensor bundles, the format of TensorFlow's checkpoints, without TensorFlow.

A bundle is `PREFIX.index` and the bytes of the tensors in `PREFIX.data-00000-of-00001` or several such files. The index
is a sorted table. Its first key is empty and has a BundleHeaderProto; the others are names of tensors and have a
BundleEntryProto. `write` writes the same bytes as TensorFlow's SaveV2.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc, tensorflow/core/protobuf/tensor_bundle.proto.
"""

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from beambert.bert_model.checkpoints import sorted_table
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.common import file_errors
from beambert.common.local_files import read_small
from beambert.common.typed_json import shown
from beambert.common.wire_format import bytes_field, fields, fixed32_field, mask, read_varint, varint_field

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
# Small enough for the checksum to find the bytes in the processor's cache.
_CHUNK_BYTES = 1 << 18
# Bytes of the longest varint.
_LONGEST_LENGTH = 10


class BundleError(ValueError):
    """A bundle cannot be read, or a tensor cannot be stored in one; the message is the reason."""


class UnsupportedTensorError(BundleError):
    """A tensor is of a kind that is not read, though its files may be correct."""


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


def encode_index(entries: Mapping[str, Entry]) -> bytes:
    """Return the index of a bundle with one data file."""
    version = bytes_field(3, varint_field(1, _VERSION))
    table = {_HEADER_KEY: varint_field(1, 1) + version}
    table |= {name.encode(): _entry_bytes(entry) for name, entry in entries.items()}
    return sorted_table.encode(sorted(table.items()))


def decode_index(content: bytes) -> tuple[Header, dict[str, Entry]]:
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
            for version_field, version in fields(message(value)):
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
            shape += _shape(message(value))
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
            sizes.append(next((_integer(size) for number, size in fields(message(value)) if number == 1), 0))
        elif field == 3 and value:
            raise ValueError("a tensor has no shape")
    return tuple(sizes)


def _integer(value: int | bytes) -> int:
    """Return a non-negative int64 of a message."""
    if isinstance(value, bytes) or value >= 1 << 63:
        raise ValueError("an entry has a field that is not a non-negative integer")
    return value


def message(value: int | bytes) -> bytes:
    """Return an embedded message. Raise ValueError for a number."""
    if isinstance(value, int):
        raise ValueError("an entry has a number in place of a message")
    return value


def read(prefix: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a bundle, sorted by name; only the index and the sizes of the data files are verified.

    Args:
        prefix: path without `.index`.

    Returns:
        Tensors by name; `read` verifies the checksum. It raises BundleError for a corrupt data file, and
        UnsupportedTensorError for a string tensor, a partitioned variable and an unknown dtype.

    Raises:
        BundleError: the index is missing or corrupt, or a data file is truncated.
    """
    header, entries = _index(prefix)
    _check_positions(prefix, header, entries.values())

    def tensor(name: str, entry: Entry) -> StoredTensor:
        return StoredTensor(entry.shape, entry.dtype, lambda: _value(prefix, name, entry, header))

    return {name: tensor(name, entry) for name, entry in entries.items()}


def read_bytes(prefix: Path, name: str) -> bytes:
    """Return the value of a string tensor with one element.

    Raises:
        BundleError: the bundle is corrupt, or has no such tensor.
    """
    header, entries = _index(prefix)
    entry = entries.get(name)
    if entry is None or entry.dtype != "string" or entry.shape or entry.is_partitioned:
        raise BundleError(f"{shown(name)} is not a string")
    content, _ = _content(_data_path(prefix, entry, header), entry)
    # The length as a varint, the masked checksum of the length as 32 or 64 bits, and the bytes.
    try:
        length, start = read_varint(content[:_LONGEST_LENGTH].tobytes(), 0)
    except ValueError as error:
        raise BundleError(f"{shown(name)}: {error}") from error
    value = content[start + 4 :].tobytes()
    size = 4 if length < 1 << 32 else 8
    length_crc = google_crc32c.value(length.to_bytes(size, "little"))
    crc = google_crc32c.extend(google_crc32c.extend(length_crc, content[start : start + 4].tobytes()), value)
    if length != len(value) or mask(crc) != entry.crc:
        raise BundleError(f"{shown(name)} does not match its checksum")
    return value


def _index(prefix: Path) -> tuple[Header, dict[str, Entry]]:
    """Read the index of a bundle."""
    path = Path(f"{prefix}.index")
    try:
        return decode_index(read_small(path))
    except OSError as error:
        raise BundleError(f"{path.name}: {file_errors.reason_of(error)}") from error
    except BundleError:
        raise
    except ValueError as error:
        raise BundleError(f"{path.name}: {error}") from error


def _check_positions(prefix: Path, header: Header, entries: Iterable[Entry]) -> None:
    """Check that tensors are in their data files, each in bytes of its own, so that all are not larger than these.

    Raises:
        BundleError: they overlap, or a data file is truncated. One that is missing is named when it is read.
    """
    ends: dict[Path, int] = {}
    for entry in sorted(entries, key=lambda entry: (entry.shard, entry.offset, entry.size)):
        path = _data_path(prefix, entry, header)
        if entry.offset < ends.get(path, 0):
            raise BundleError("its tensors overlap")
        ends[path] = entry.offset + entry.size
    for path, end in ends.items():
        if path.is_file() and path.stat().st_size < end:
            raise BundleError(f"{path.name} is truncated")


def write(prefix: Path, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write a bundle with one data file, one tensor after the other; the index is written last.

    Args:
        prefix: path without `.index`, in an existing directory, which should be a temporary one: the files are not
            written atomically.
        tensors: (name, value) pairs; the order is that of the data file.

    Raises:
        BundleError: a value has a dtype that cannot be stored.
        FileError: the files cannot be written.
        FileNotFoundError: the directory was removed.
    """
    entries: dict[str, Entry] = {}
    offset = 0
    with contextlib.ExitStack() as stack:
        with file_errors.writing(prefix):
            data = stack.enter_context(Path(f"{prefix}.data-00000-of-00001").open("wb", buffering=0))
        for name, value in tensors:
            dtype = value.dtype.name
            if dtype not in DTYPE_NAMES:
                raise BundleError(f"{name} has the dtype {dtype}, which a checkpoint cannot store")
            # The file has native byte order, which is little-endian.
            content = np.asarray(value, value.dtype.newbyteorder("="), order="C").reshape(-1).view(np.uint8)
            with file_errors.writing(prefix):
                crc = _write_content(data, content)
            entries[name] = Entry(dtype, value.shape, 0, offset, len(content), mask(crc))
            offset += len(content)
        with file_errors.writing(prefix):
            data.close()
    with file_errors.writing(prefix):
        Path(f"{prefix}.index").write_bytes(encode_index(entries))


def _write_content(file: RawIOBase, content: np.ndarray) -> int:
    """Write the bytes of a tensor to an unbuffered file; return their CRC-32C."""
    crc = start = 0
    while start < len(content):
        chunk = content[start : start + _CHUNK_BYTES]
        # A disk that is almost full takes only a part.
        written = file.write(chunk.data) or 0
        crc = google_crc32c.extend(crc, chunk[:written])
        start += written
    return crc


def _value(prefix: Path, name: str, entry: Entry, header: Header) -> np.ndarray:
    """Read and verify a tensor."""
    shown_name = shown(name)
    if entry.is_partitioned:
        raise UnsupportedTensorError(f"{shown_name} is a partitioned variable")
    if entry.dtype not in DTYPE_NAMES:
        raise UnsupportedTensorError(f"{shown_name} has the dtype {entry.dtype}")
    path = _data_path(prefix, entry, header)
    content, crc = _content(path, entry)
    if mask(crc) != entry.crc:
        raise BundleError(f"{shown_name} in {path.name} does not match its checksum")
    dtype = numpy_dtype(entry.dtype)
    if header.big_endian:
        # As unsigned integers, because numpy does not swap bfloat16; a complex number has two parts.
        part_bytes = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
        content = content.view(f"u{part_bytes}").byteswap().view(np.uint8)
    try:
        return content.view(dtype).reshape(entry.shape)
    except ValueError as error:
        raise BundleError(f"{shown_name} has a dimension that is too large") from error


def _data_path(prefix: Path, entry: Entry, header: Header) -> Path:
    return Path(f"{prefix}.data-{entry.shard:05d}-of-{header.num_shards:05d}")


def _content(path: Path, entry: Entry) -> tuple[np.ndarray, int]:
    """Return the bytes of a tensor, [size] uint8, and their CRC-32C."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < entry.offset + entry.size:
                raise BundleError(f"{path.name} is truncated")
            file.seek(entry.offset)
            content = np.empty(entry.size, np.uint8)
            return content, _read_content(file, content)
    except OSError as error:
        raise BundleError(f"{path.name}: {file_errors.reason_of(error)}") from error


def _read_content(file: BufferedReader, content: np.ndarray) -> int:
    """Fill an array from a file; return the CRC-32C of its bytes."""
    crc = 0
    for start in range(0, len(content), _CHUNK_BYTES):
        chunk = content[start : start + _CHUNK_BYTES]
        if file.readinto(chunk.data) != len(chunk):
            raise BundleError(f"{Path(file.name).name} is truncated")
        crc = google_crc32c.extend(crc, chunk)
    return crc
