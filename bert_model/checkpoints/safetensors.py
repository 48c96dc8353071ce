"""Read and write safetensors files.

The numpy reader of the library rejects bfloat16, so this module parses files itself: 8 bytes with the length of a JSON
header, the header, and the data. The library writes them.
"""

import dataclasses
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor, as_float32, count_elements
from beambert.common import file_errors
from beambert.common.typed_json import Count, convert, decode, shorten, shown

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
# Limit of the library.
_LONGEST_HEADER = 100_000_000


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A tensor in the header."""

    dtype: str
    shape: tuple[Count, ...]
    data_offsets: tuple[Count, Count]


def read(path: Path) -> dict[str, StoredTensor]:
    """Return all tensors of a file by name; 16-bit weights are converted to float32.

    Raises:
        CheckpointError: the file is corrupt, or has a tensor of an unknown dtype.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_LONGEST_HEADER, size - 8):
                raise ValueError("its header is longer than the file")
            header = decode(file.read(length), dict[str, Any])
        header.pop("__metadata__", None)
        entries = convert(header, dict[str, _Entry])
        _require_all_bytes(entries, size - 8 - length)
        return {name: _tensor(path, entry, 8 + length, size) for name, entry in entries.items()}
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except (struct.error, ValueError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file ({error}); copy it again") from error


def _require_all_bytes(entries: Mapping[str, _Entry], size: int) -> None:
    """Check that the tensors are contiguous and fill the file, as the library requires.

    Args:
        entries: entries of the header.
        size: number of bytes after the header.

    Raises:
        ValueError: the tensors have gaps, overlap, or do not fill the file.
    """
    end = 0
    for first, last in sorted(entry.data_offsets for entry in entries.values()):
        if first != end:
            raise ValueError(f"a tensor starts at byte {first:,}, but the previous one ends at byte {end:,}")
        end = last
    if end != size:
        raise ValueError(f"its tensors have {end:,} bytes, but {size:,} bytes follow the header")


def write(path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Write one file in the library's own tensor order, which PyTorch's readers accept.

    Raises:
        CheckpointError: a tensor cannot be read.
        FileError: the file cannot be written.
    """
    from safetensors.numpy import save_file

    # The library creates files that only the owner can read; this one follows the umask.
    content = {name: tensor.read() for name, tensor in tensors.items()}
    with file_errors.writing(path):
        path.touch()
        mode = stat.S_IMODE(path.stat().st_mode)
        save_file(content, path, metadata={"format": "pt"})
        path.chmod(mode)


def _tensor(path: Path, entry: _Entry, begin: int, size: int) -> StoredTensor:
    if entry.dtype not in _DTYPES:
        raise ValueError(f"dtype {shown(entry.dtype)} is not one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[entry.dtype]
    stored = np.dtype("<u2") if dtype == "bfloat16" else np.dtype(dtype).newbyteorder("<")
    shape = entry.shape
    first, last = entry.data_offsets
    if not first <= last <= size - begin or last - first != count_elements(shape) * stored.itemsize:
        raise ValueError(f"bytes {first} to {last} do not fit a tensor of shape {shorten(str(list(shape)))}")

    def value() -> np.ndarray:
        with path.open("rb") as file:
            file.seek(begin + first)
            content = file.read(last - first)
        if len(content) < last - first:
            raise CheckpointError(f"{path} was truncated while it was read; copy it again")
        return as_float32(np.frombuffer(content, stored), dtype).reshape(shape)

    return StoredTensor(shape, "float32" if dtype in ("bfloat16", "float16") else dtype, value)
