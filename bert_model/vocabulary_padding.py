"""Vocabulary padding to a multiple of 128 rows, for the matrix units of accelerators.

Only running models have the padding: `without_padding` removes it for checkpoints and exports, which have vocab_size
rows, and `with_padding` adds it. This file imports neither Keras nor TensorFlow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from beambert.bert_model.variable_names import TOKEN_VARIABLES

MULTIPLE = 128


def padded_size(vocab_size: int) -> int:
    """Return the smallest multiple of 128 that is at least `vocab_size`."""
    return -(-vocab_size // MULTIPLE) * MULTIPLE


def is_padded(tf1_name: str) -> bool:
    """Return whether a variable, or its slot `adam_m` or `adam_v`, has one row per token."""
    return tf1_name.removesuffix("/adam_m").removesuffix("/adam_v") in TOKEN_VARIABLES


def without_padding(tf1_name: str, value: Any, vocab_size: int | None) -> Any:
    """Return a value without vocabulary padding, as in checkpoints.

    Args:
        tf1_name: TF1 name of the variable or slot.
        value: array or tensor of a running model.
        vocab_size: number of tokens; None for no padding.

    Returns:
        The first vocab_size rows of a variable with one row per token; other values unchanged.
    """
    return value[:vocab_size] if is_padded(tf1_name) else value


def with_padding(tf1_name: str, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return a value with vocabulary padding, as in a running model.

    Args:
        tf1_name: TF1 name of the variable or slot.
        value: value from a checkpoint.
        shape: shape of the variable in the model.

    Returns:
        A variable with one row per token, padded with zeros to the rows of `shape`; other values unchanged.
    """
    if not is_padded(tf1_name) or len(value) == shape[0]:
        return value
    return np.concatenate([value, np.zeros((shape[0] - len(value), *value.shape[1:]), value.dtype)])
