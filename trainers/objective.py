"""What the loop trains: variables, and a function from features to the sums that loss and metrics are made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tensorflow as tf

Features = dict[str, tf.Tensor]
# Numerator and denominator of each metric: summed over batches, divided once.
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Ratios = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Objective:
    """What is trained.

    Attributes:
        variables: trained variables by TF1 name.
        sums: from (features, dropout seed int32 [2] or None for evaluation) to numerator and denominator, float32
            scalars, of every term of the loss and every metric. Features may hold example_weights float32 [B], 0 for
            rows that only fill a batch up.
        weights: from features alone to the denominators of the terms of the loss, by their names in `sums`. The loss
            of a step is the sum over terms of numerator by denominator, each summed over the whole batch before.
        frozen: variables that are not trained but belong to the model, and so to its checkpoints, by TF1 name.
        vocab_size: rows that checkpoints hold of variables with a row for every token; None if none is padded.
    """

    variables: Mapping[str, tf.Variable]
    sums: Callable[[Features, tf.Tensor | None], Sums]
    weights: Callable[[Features], dict[str, tf.Tensor]]
    frozen: Mapping[str, tf.Variable] = field(default_factory=dict)
    vocab_size: int | None = None
