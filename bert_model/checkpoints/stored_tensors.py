"""Tensors in files, read on demand: the common result of all checkpoint readers."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, written or used; the message is one line that says what to do."""


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Attributes:
        shape: as stored.
        dtype: numpy's name of what `read` returns, such as "float32".
        read: reads it; raises CheckpointError if the file turns out damaged.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]


def transposed(tensor: StoredTensor) -> StoredTensor:
    """Return the transpose of a matrix, rows lying together."""
    return StoredTensor(tensor.shape[::-1], tensor.dtype, lambda: np.ascontiguousarray(tensor.read().T))


def as_float32(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Return 16-bit weights as float32, which loses nothing, and other values unchanged.

    Args:
        stored: as it lies in the file; bfloat16, which numpy lacks, as its 16 bits in uint16.
        dtype: "bfloat16" or numpy's name.
    """
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if dtype == "float16" else stored
