"""Read and write tensor bundles, the format of TensorFlow's checkpoints, without TensorFlow.

A bundle is `PREFIX.index`, described in `bundle_index.py`, and the bytes of the tensors in
`PREFIX.data-00000-of-00001` or several such files. `write` writes the same bytes as TensorFlow's SaveV2.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc.
"""

import contextlib
import os
from collections.abc import Iterable
from io import BufferedReader, RawIOBase
from pathlib import Path

import google_crc32c
import numpy as np

from beambert.bert_model.checkpoints import bundle_index
from beambert.bert_model.checkpoints.bundle_index import DTYPE_NAMES, Entry, Header, numpy_dtype
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.common import file_errors
from beambert.common.local_files import read_small
from beambert.common.typed_json import shown
from beambert.common.wire_format import mask, read_varint

# Small enough for the checksum to find the bytes in the processor's cache.
_CHUNK_BYTES = 1 << 18
# Bytes of the longest varint.
_LONGEST_LENGTH = 10


class BundleError(ValueError):
    """A bundle cannot be read, or a tensor cannot be stored in one; the message is the reason."""


class UnsupportedTensorError(BundleError):
    """A tensor is of a kind that is not read, though its files may be correct."""


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
        return bundle_index.decode(read_small(path))
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
        Path(f"{prefix}.index").write_bytes(bundle_index.encode(entries))


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
