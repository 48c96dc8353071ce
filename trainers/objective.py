"""Define the objective of the training loop: variables, and the metric sums from which loss and metrics follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tensorflow as tf

Features = dict[str, tf.Tensor]
# Numerator and denominator of each metric; both are summed over batches, then divided.
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Ratios = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Objective:
    """An objective: what the training loop optimizes.

    Attributes:
        variables: trained variables by TF1 name.
        sums: function of features and a dropout seed, int32 [2], or None for evaluation. It returns the numerator and
            denominator, float32 scalars, of every loss term and every metric. Features may contain example_weights,
            float32 [B], 0 for rows that pad the batch.
        weights: function of features; returns the denominators of the loss terms, float32 scalars, by their names in
            `sums`. The loss of a step is the sum of numerator / denominator over the terms, each summed over the whole
            batch first.
        frozen: variables of the model that are not trained but saved in checkpoints, by TF1 name.
        vocab_size: vocabulary rows that checkpoints keep of padded variables; None if no variable is padded.
    """

    variables: Mapping[str, tf.Variable]
    sums: Callable[[Features, tf.Tensor | None], Sums]
    weights: Callable[[Features], dict[str, tf.Tensor]]
    frozen: Mapping[str, tf.Variable] = field(default_factory=dict)
    vocab_size: int | None = None
