"""The size and FLOPs of a model, computed from its configuration alone.

This file imports neither Keras nor TensorFlow.
"""

import math
from typing import NamedTuple

from bert_model.checkpoints.variable_names import PRETRAINING, variable_names
from bert_model.config import BertConfig


class ParameterCounts(NamedTuple):
    """The number of parameters of each part of a model.

    The published 110 and 340 million of base and large are rounded from encoder and heads together: 110,106,428 and
    336,226,108 with 30,522 tokens.

    Attributes:
        embeddings: of words, segments and positions, with their layer normalization.
        layers: of all Transformer layers.
        pooler: of the dense layer over [CLS].
        heads: of the task; the masked-LM head's output matrix is the word embeddings and not counted again.
    """

    embeddings: int
    layers: int
    pooler: int
    heads: int

    @property
    def encoder(self) -> int:
        """Return the model without heads."""
        return self.embeddings + self.layers + self.pooler

    @property
    def total(self) -> int:
        """Return the model with its heads."""
        return self.encoder + self.heads


def parameter_counts(config: BertConfig, task: str = PRETRAINING, num_labels: int | None = None) -> ParameterCounts:
    """Count the parameters of a model.

    Args:
        config: shape of the model.
        task: "pretraining", or a task of fine-tuning.
        num_labels: of the task; None where the task decides it.

    Raises:
        ConfigError: no such task, or a number of labels that it cannot have.
    """
    counts = dict.fromkeys(ParameterCounts._fields, 0)
    for name in variable_names(config, task, num_labels):
        first, second = name.ours.split(".")[:2]
        counts[second if first == "encoder" else "heads"] += math.prod(name.shape)
    return ParameterCounts(**counts)


def forward_flops_per_token(config: BertConfig, sequence_length: int, predictions_per_sequence: int = 0) -> float:
    """Return the floating-point operations of a forward pass, divided by the positions of a sequence.

    2 for each weight of a matrix product, and 4 S H a layer for attention scores and their product with the values:

        L (8 H^2 + 4 H I + 4 S H) + 2 H^2 / S + (P / S) (2 H^2 + 2 H V)

    the terms being the layers, the pooler and the masked-LM head. As is usual, every layer counts with all positions,
    though pretraining here spares the last layer those it predicts nothing from; elementwise operations are left out.

    Args:
        config: shape of the model.
        sequence_length: positions of a sequence, S.
        predictions_per_sequence: masked positions, P; 0 for a model without the masked-LM head.
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    layer = 8 * hidden**2 + 4 * hidden * intermediate + 4 * sequence_length * hidden
    pooler = 2 * hidden**2
    prediction = 2 * hidden**2 + 2 * hidden * config.vocab_size
    per_sequence = pooler + predictions_per_sequence * prediction
    return config.num_hidden_layers * layer + per_sequence / sequence_length


def training_flops_per_token(config: BertConfig, sequence_length: int, predictions_per_sequence: int = 0) -> float:
    """Return three times the forward pass: the backward pass has two products for each of its products."""
    return 3 * forward_flops_per_token(config, sequence_length, predictions_per_sequence)


def skipped_training_flops_per_token(config: BertConfig, sequence_length: int, predictions_per_sequence: int) -> float:
    """Return the part of `training_flops_per_token` that pretraining here does not compute.

    The last layer has keys and values at all positions, everything else at [CLS] and the masked positions alone:

        3 (1 - (1 + P) / S) (4 H^2 + 4 H I + 4 S H)
    """
    hidden, intermediate = config.hidden_size, config.intermediate_size
    of_position = 4 * hidden**2 + 4 * hidden * intermediate + 4 * sequence_length * hidden
    return 3 * (1 - (1 + predictions_per_sequence) / sequence_length) * of_position
