"""Concatenate integer ranges of different lengths."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the concatenation of n ranges: start, start + 1, ..., start + length - 1 of each.

    Args:
        starts: int64 [n].
        lengths: int64 [n].

    Returns:
        int64 [sum of lengths].
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
