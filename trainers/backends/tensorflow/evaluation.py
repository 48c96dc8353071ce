"""The metrics of a task over many batches."""

from collections.abc import Callable, Iterable

import tensorflow as tf

from trainers.backends.tensorflow.distribution import Distribution
from trainers.objective import Features, Objective, Ratios, Sums


def evaluation_of(
    task: Objective, distribution: Distribution | None = None
) -> Callable[[Iterable[Features]], dict[str, float]]:
    """Return a function from batches to the task's metrics over all of them, compiled once.

    Numerators and denominators are summed in float64 and divided once, so that the batch of an example does not
    change its weight.

    Args:
        task: objective of the model to evaluate.
        distribution: the devices, whose `batches` are the argument of the function; None for a single device.
    """
    devices = distribution or Distribution()

    def sums(features: Features) -> Sums:
        return task.sums(features, None)

    def summed(batch: Features) -> Sums:
        return devices.sum(devices.run(sums, batch))

    # Rewriting by AutoGraph takes longer than tracing; there is nothing to rewrite.
    step = tf.function(summed, autograph=False)
    return lambda batches: divided(on_host(step(features)) for features in batches)


def divided(batches: Iterable[Ratios]) -> dict[str, float]:
    """Add the sums of several batches and divide; a metric with nothing to count is 0."""
    totals: dict[str, tuple[float, float]] = {}
    for sums in batches:
        for name, (numerator, denominator) in sums.items():
            top, bottom = totals.get(name, (0.0, 0.0))
            totals[name] = (top + numerator, bottom + denominator)
    return {name: top / bottom if bottom else 0.0 for name, (top, bottom) in totals.items()}


def on_host(sums: Sums) -> Ratios:
    """Return sums as Python numbers."""
    return {name: (float(numerator), float(denominator)) for name, (numerator, denominator) in sums.items()}
