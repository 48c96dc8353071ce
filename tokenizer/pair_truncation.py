"""The truncation of a pair of texts to a maximum number of tokens, as in google-research/bert.

`_truncate_seq_pair` of run_classifier.py and `truncate_seq_pair` of create_pretraining_data.py take one token at a time
from the longer text, and from the second where both are as long. This is where that ends, computed at once.
"""

import numpy as np


def truncated_lengths(
    first: np.ndarray | int, second: np.ndarray | int, room: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens each text of a pair keeps.

    Either the shorter text is complete and the longer one fills the room, or they share it, the first with the odd
    token.

    Args:
        first, second: tokens of the texts, int64 [n] or one number.
        room: tokens that both may have together, at least 0, int64 [n] or one number.

    Returns:
        int64 [n], or a scalar, for the first text and for the second.
    """
    kept_second = np.minimum(second, np.maximum(room - first, room // 2))
    return np.minimum(first, room - kept_second), kept_second
