"""Define the objective of the training loop: variables, and the metric sums from which loss and metrics follow."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

Tensor = Any
Features = dict[str, Tensor]
# Numerator and denominator of each metric; both are summed over batches, then divided.
Sums = dict[str, tuple[Tensor, Tensor]]
Ratios = dict[str, tuple[float, float]]

# Metric that counts steps with a non-finite loss or gradient.
NOT_FINITE = "not_finite"


@dataclass(frozen=True)
class Objective:
    """An objective: what the training loop optimizes.

    Attributes:
        variables: trained variables by TF1 name.
        sums: function of features and a dropout seed, int32 [2] or [B, 2], or None for evaluation. It returns the
            numerator and denominator, float32 scalars, of every loss term and every metric. Features may contain
            example_weights, float32 [B], 0 for rows that pad the batch. All tensors are those of the backend in use.
        weights: function of features; returns the denominators of the loss terms, float32 scalars, by their names in
            `sums`. The loss of a step is the sum of numerator / denominator over the terms, each summed over the whole
            batch first.
        frozen: variables of the model that are not trained but saved in checkpoints, by TF1 name.
        vocab_size: vocabulary rows that checkpoints keep of padded variables; None if no variable is padded.
    """

    variables: Mapping[str, keras.Variable]
    sums: Callable[[Features, Tensor | None], Sums]
    weights: Callable[[Features], dict[str, Tensor]]
    frozen: Mapping[str, keras.Variable] = field(default_factory=dict)
    vocab_size: int | None = None


def loss_of(sums: Sums, denominators: Mapping[str, Tensor]) -> Tensor:
    """Return the part of the loss in metric sums, float32 scalar.

    Args:
        sums: metric sums of a part of a batch.
        denominators: denominators of the loss terms over the whole batch; a term with denominator 0 is 0.
    """
    return sum(ops.divide_no_nan(sums[name][0], denominator) for name, denominator in denominators.items())


def to_host(sums: Mapping[str, tuple[Any, Any]]) -> Ratios:
    """Return metric sums as Python floats."""
    return {name: (float(numerator), float(denominator)) for name, (numerator, denominator) in sums.items()}


def compute_metrics(batches: Iterable[Ratios]) -> dict[str, float]:
    """Return the metrics over several batches, summed in float64 and divided once; one with denominator 0 is 0."""
    totals: dict[str, tuple[float, float]] = {}
    for sums in batches:
        for name, (numerator, denominator) in sums.items():
            top, bottom = totals.get(name, (0.0, 0.0))
            totals[name] = (top + numerator, bottom + denominator)
    return {name: top / bottom if bottom else 0.0 for name, (top, bottom) in totals.items()}
