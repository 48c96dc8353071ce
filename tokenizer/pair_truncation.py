"""Truncate text pairs to a maximum number of tokens, as in google-research/bert.

`_truncate_seq_pair` of run_classifier.py and `truncate_seq_pair` of create_pretraining_data.py remove one token at a
time from the longer text, or from the second if both are equally long. This module computes the result directly.
"""

import numpy as np


def truncated_lengths(
    first: np.ndarray | int, second: np.ndarray | int, room: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of text pairs after truncation.

    Either the shorter text is kept whole, or both get half of the room, the first one more token if it is odd.

    Args:
        first: Tokens of the first texts: int64 [n] or one number.
        second: Tokens of the second texts: int64 [n] or one number.
        room: Maximum tokens of a pair, at least 0: int64 [n] or one number.

    Returns:
        Lengths of the first and of the second texts: int64 [n] or one number each.
    """
    kept_second = np.minimum(second, np.maximum(room - first, room // 2))
    return np.minimum(first, room - kept_second), kept_second
