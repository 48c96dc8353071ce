"""Ranges of different lengths, one after the other in a flat array."""

import numpy as np


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers of all ranges: start, start + 1, ... of the first, then of the second, and so on.

    Args:
        starts, lengths: int64 [n].

    Returns:
        int64 [sum of lengths].
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
