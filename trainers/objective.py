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


def sums_of_step(
    sums: Sums, loss: Tensor, gradient_norm: Tensor, learning_rate: Tensor, *, skip_nonfinite: bool, part: float
) -> tuple[Sums, Tensor]:
    """Return the metric sums of a step with loss, gradient_norm, learning_rate and not_finite, and its finiteness.

    Args:
        sums: a replica's part of the metric sums.
        loss, gradient_norm, learning_rate: float32 scalars of the step, equal on all replicas.
        skip_nonfinite: whether a non-finite step is skipped; its values would make every mean non-finite.
        part: 1 / number of replicas, so that the sums over replicas are those of the step.
    """
    is_finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(gradient_norm))
    of_step = {"loss": loss, "gradient_norm": gradient_norm, "learning_rate": learning_rate}
    one = ops.convert_to_tensor(part, "float32")
    count = one
    if skip_nonfinite:
        sums = {name: (ops.where(is_finite, n, 0.0), ops.where(is_finite, d, 0.0)) for name, (n, d) in sums.items()}
        of_step = {name: ops.where(is_finite, value, 0.0) for name, value in of_step.items()}
        count = ops.where(is_finite, one, 0.0)
    skipped = one * ops.cast(ops.logical_not(is_finite), "float32")
    with_step = {name: (value * one, count) for name, value in of_step.items()}
    return {**with_step, **sums, NOT_FINITE: (skipped, one)}, is_finite


def divided(batches: Iterable[Ratios]) -> dict[str, float]:
    """Return the metrics over several batches, summed in float64 and divided once; one with denominator 0 is 0."""
    totals: dict[str, tuple[float, float]] = {}
    for sums in batches:
        for name, (numerator, denominator) in sums.items():
            top, bottom = totals.get(name, (0.0, 0.0))
            totals[name] = (top + numerator, bottom + denominator)
    return {name: top / bottom if bottom else 0.0 for name, (top, bottom) in totals.items()}
