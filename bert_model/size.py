"""Compute the sizes of a model from its configuration: parameters, FLOPs, and rows of a padded vocabulary.

On accelerators, running models pad the vocabulary to a multiple of 128 rows, for the matrix units. Checkpoints and
exports have vocab_size rows: `without_padding` removes the others, and `with_padding` adds them. This file imports
neither Keras nor TensorFlow.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.heads.head import Head
from beambert.bert_model.variable_names import TOKEN_VARIABLES

ROW_MULTIPLE = 128


class ParameterCounts(NamedTuple):
    """The number of parameters of each part of a model.

    The published 110 and 340 million of base and large include the pretraining heads: 110,106,428 and 336,226,108 with
    30,522 tokens.

    Attributes:
        embeddings: word, segment and position embeddings with layer normalization.
        layers: all Transformer layers.
        pooler: the dense layer on [CLS].
        heads: the head, or those of pretraining without the output matrix of the masked-LM head, which is tied to the
            word embeddings.
    """

    embeddings: int
    layers: int
    pooler: int
    heads: int

    @property
    def encoder(self) -> int:
        """Return the number of parameters without heads."""
        return self.embeddings + self.layers + self.pooler

    @property
    def total(self) -> int:
        """Return the number of parameters with heads."""
        return self.encoder + self.heads


def parameter_counts(config: BertConfig, head: Head = PRETRAINING, num_labels: int | None = None) -> ParameterCounts:
    """Count the parameters of a model.

    Args:
        config: configuration of the model.
        head: head of the model.
        num_labels: number of labels; None where the head has a fixed number.

    Raises:
        ConfigError: num_labels is not valid for the head.
    """
    counts = dict.fromkeys(ParameterCounts._fields, 0)
    for name in head.variable_names(config, num_labels):
        first, second = name.ours.split(".")[:2]
        counts[second if first == "encoder" else "heads"] += math.prod(name.shape)
    return ParameterCounts(**counts)


def forward_flops_per_token(config: BertConfig, sequence_length: int, predictions_per_sequence: int = 0) -> float:
    """Return the FLOPs of a forward pass per position of a sequence.

    Each weight of a matrix product counts 2, and attention scores and their product with the values count 4 S H per
    layer:

        L (8 H^2 + 4 H I + 4 S H) + 2 H^2 / S + (P / S) (2 H^2 + 2 H V)

    The terms are the layers, the pooler and the masked-LM head. By convention every layer counts all positions,
    although the last layer of pretraining computes only the positions that the heads read. Elementwise operations are
    not counted.

    Args:
        config: configuration of the model.
        sequence_length: sequence length, S.
        predictions_per_sequence: number of masked positions, P; 0 for a model without the masked-LM head.
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    layer = 8 * hidden**2 + 4 * hidden * intermediate + 4 * sequence_length * hidden
    pooler = 2 * hidden**2
    prediction = 2 * hidden**2 + 2 * hidden * config.vocab_size
    per_sequence = pooler + predictions_per_sequence * prediction
    return config.num_hidden_layers * layer + per_sequence / sequence_length


def training_flops_per_token(config: BertConfig, sequence_length: int, predictions_per_sequence: int = 0) -> float:
    """Return the FLOPs of a training step per position: three forward passes, since backward has twice the products."""
    return 3 * forward_flops_per_token(config, sequence_length, predictions_per_sequence)


def skipped_training_flops_per_token(config: BertConfig, sequence_length: int, predictions_per_sequence: int) -> float:
    """Return the part of `training_flops_per_token` that pretraining skips.

    The last layer computes keys and values at all positions, everything else only at [CLS] and the masked positions:

        3 (1 - (1 + P) / S) (4 H^2 + 4 H I + 4 S H)
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    of_position = 4 * hidden**2 + 4 * hidden * intermediate + 4 * sequence_length * hidden
    return 3 * (1 - (1 + predictions_per_sequence) / sequence_length) * of_position


def padded_size(vocab_size: int) -> int:
    """Return the smallest multiple of 128 that is at least `vocab_size`."""
    return -(-vocab_size // ROW_MULTIPLE) * ROW_MULTIPLE


def is_padded(tf1_name: str) -> bool:
    """Return whether a variable, or its optimizer slot `<variable>/<slot>`, has one row per token."""
    return tf1_name in TOKEN_VARIABLES or tf1_name.rpartition("/")[0] in TOKEN_VARIABLES


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


def with_padding(tf1_name: str, value: np.ndarray, shape: Sequence[int], fill: float = 0.0) -> np.ndarray:
    """Return a value with vocabulary padding, as in a running model.

    Args:
        tf1_name: TF1 name of the variable or slot.
        value: value from a checkpoint.
        shape: shape of the variable in the model.
        fill: value of the padding: the initial value of a slot, 0 for a variable.

    Returns:
        A variable with one row per token, padded to the rows of `shape`; other values unchanged.
    """
    if not is_padded(tf1_name) or len(value) == shape[0]:
        return value
    return np.concatenate([value, np.full((shape[0] - len(value), *value.shape[1:]), fill, value.dtype)])
