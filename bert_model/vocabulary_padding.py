"""Rows that round a vocabulary up to a multiple of 128, for the matrix units of accelerators.

They exist in a running model alone: checkpoints and exports hold vocab_size rows, which `without_padding` and
`with_padding` see to. This file imports neither Keras nor TensorFlow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

MULTIPLE = 128
# TF1 names of the variables with a row for every token; optimizer slots are named after them.
PADDED_VARIABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


def padded_size(vocab_size: int) -> int:
    """Return the smallest multiple of 128 that holds `vocab_size` rows."""
    return -(-vocab_size // MULTIPLE) * MULTIPLE


def is_padded(tf1_name: str) -> bool:
    """Return whether a variable, or its slot `adam_m` or `adam_v`, has a row for every token."""
    return tf1_name.removesuffix("/adam_m").removesuffix("/adam_v") in PADDED_VARIABLES


def without_padding(tf1_name: str, value: Any, vocab_size: int | None) -> Any:
    """Return the value as it is stored in checkpoints.

    Args:
        tf1_name: of the variable or slot.
        value: array or tensor, of a running model.
        vocab_size: tokens of the vocabulary; None for no padding.

    Returns:
        The first vocab_size rows of a variable with a row for every token; any other value as it is.
    """
    return value[:vocab_size] if is_padded(tf1_name) else value


def with_padding(tf1_name: str, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return the value as a running model has it.

    Args:
        tf1_name: of the variable or slot.
        value: from a checkpoint.
        shape: of the variable in the model.

    Returns:
        A variable with a row for every token, filled up to the rows of `shape` with zeros; any other value as it is.
    """
    if not is_padded(tf1_name) or len(value) == shape[0]:
        return value
    return np.concatenate([value, np.zeros((shape[0] - len(value), *value.shape[1:]), value.dtype)])
