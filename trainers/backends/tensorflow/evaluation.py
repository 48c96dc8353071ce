"""Compute the metrics of an objective over many batches."""

from collections.abc import Callable, Iterable

import tensorflow as tf

from trainers.backends.tensorflow.distribution import Distribution
from trainers.objective import Features, Objective, Ratios, Sums


def evaluation_of(
    task: Objective, distribution: Distribution | None = None
) -> Callable[[Iterable[Features]], dict[str, float]]:
    """Return a function from batches to the metrics over all of them; it is compiled once.

    Numerators and denominators are summed in float64 and divided once, so that the weight of an example does not
    depend on its batch.

    Args:
        task: the objective.
        distribution: the devices, whose `batches` are the argument of the function; None for a single device.
    """
    devices = distribution or Distribution()

    def sums(features: Features) -> Sums:
        return task.sums(features, None)

    def summed(batch: Features) -> Sums:
        return devices.sum(devices.run(sums, batch))

    # AutoGraph takes longer than tracing, and there is no Python control flow to convert.
    step = tf.function(summed, autograph=False)
    return lambda batches: divided(on_host(step(features)) for features in batches)


def divided(batches: Iterable[Ratios]) -> dict[str, float]:
    """Return the metrics over several batches; a metric with denominator 0 is 0."""
    totals: dict[str, tuple[float, float]] = {}
    for sums in batches:
        for name, (numerator, denominator) in sums.items():
            top, bottom = totals.get(name, (0.0, 0.0))
            totals[name] = (top + numerator, bottom + denominator)
    return {name: top / bottom if bottom else 0.0 for name, (top, bottom) in totals.items()}


def on_host(sums: Sums) -> Ratios:
    """Return metric sums as Python floats."""
    return {name: (float(numerator), float(denominator)) for name, (numerator, denominator) in sums.items()}
