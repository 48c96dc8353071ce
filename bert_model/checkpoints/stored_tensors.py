"""Tensors in files that are read on demand, the common result of all checkpoint readers."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# Limits of numpy, for elements of up to 16 bytes.
_MOST_DIMENSIONS = 64
_MOST_ELEMENTS = 1 << 59


class CheckpointError(ValueError):
    """A checkpoint cannot be read, written or used; the message is one line with a remedy."""


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Attributes:
        shape: shape in the file.
        dtype: numpy name of the dtype that `read` returns, such as "float32".
        read: function that reads the tensor; it raises CheckpointError where the file is corrupt.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]


def count_elements(shape: Sequence[int]) -> int:
    """Return the number of elements of an array.

    Raises:
        ValueError: numpy has no array of this shape; the product of millions of sizes would take hours.
    """
    if len(shape) > _MOST_DIMENSIONS or math.prod(max(1, size) for size in shape) > _MOST_ELEMENTS:
        raise ValueError("the shape of a tensor is too large")
    return math.prod(shape)


def transposed(tensor: StoredTensor) -> StoredTensor:
    """Return the transpose of a matrix, as a C-contiguous tensor."""
    return StoredTensor(tensor.shape[::-1], tensor.dtype, lambda: np.ascontiguousarray(tensor.read().T))


def merged_heads(tf1_name: str, tensor: StoredTensor) -> StoredTensor:
    """Return a variable of attention without the dimension of heads, which TF1 does not have.

    Args:
        tf1_name: name of the variable; all but those of attention are returned unchanged.
        tensor: kernel of a projection, [H, heads, H / heads], its bias, [heads, H / heads], or the kernel of the
            attention output, [heads, H / heads, H].
    """
    shape = tensor.shape
    is_projection = "/attention/self/" in tf1_name
    if is_projection and tf1_name.endswith("/kernel") and len(shape) == 3:
        shape = (shape[0], shape[1] * shape[2])
    elif is_projection and tf1_name.endswith("/bias") and len(shape) == 2:
        shape = (shape[0] * shape[1],)
    elif tf1_name.endswith("/attention/output/dense/kernel") and len(shape) == 3:
        shape = (shape[0] * shape[1], shape[2])
    else:
        return tensor
    return StoredTensor(shape, tensor.dtype, lambda: np.reshape(tensor.read(), shape))


def as_float32(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Return 16-bit weights as float32, without loss, and other values unchanged.

    Args:
        stored: array in the file; bfloat16, which numpy lacks, as uint16.
        dtype: "bfloat16", or a numpy name.
    """
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if dtype == "float16" else stored
