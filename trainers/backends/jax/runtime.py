"""The members of `beambert.trainers.backends.backend.Backend` for JAX: training, evaluation and outputs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import PartitionSpec

from beambert.trainers.backends.backend import MakeBatches
from beambert.trainers.backends.jax.distribution import (
    DATA,
    Distribution,
    open_distribution,
    place,
    with_values,
)
from beambert.trainers.backends.jax.train_step import Trainer
from beambert.trainers.objective import Features, Objective, Sums, Tensor, compute_metrics, to_host

__all__ = ["compiled", "evaluation_of", "evaluation_step", "make_trainer", "open_distribution", "outputs_of"]

make_trainer = Trainer


def evaluation_of(objective: Objective, distribution: Distribution) -> Callable[[MakeBatches], dict[str, float]]:
    """Return a function from batches to the metrics over all of them; it is compiled once per shape.

    Numerators and denominators are summed in float64 and divided once, so that the weight of an example does not
    depend on its batch.

    Args:
        objective: the objective.
        distribution: the devices.
    """
    variables = [*objective.variables.values(), *objective.frozen.values()]
    step = evaluation_step(objective, distribution)

    def evaluate(make: MakeBatches) -> dict[str, float]:
        values = place(variables, distribution)
        with distribution.batches(make) as batches:
            # The devices compute while the next batch is read; the results are fetched at the end.
            results = [step(values, features) for features in batches]
        return compute_metrics(to_host(result) for result in jax.device_get(results))

    return evaluate


def evaluation_step(objective: Objective, distribution: Distribution) -> Callable[..., Sums]:
    """Return a compiled function of the values of all variables and a global batch to the batch's metric sums."""
    variables = [*objective.variables.values(), *objective.frozen.values()]

    def sums(values: list[Tensor], features: Features) -> Sums:
        with with_values(variables, values):
            return jax.lax.psum(objective.sums(features, None), DATA)

    return jax.jit(distribution.shard_map(sums, (PartitionSpec(), PartitionSpec(DATA)), PartitionSpec()))


def outputs_of(
    function: Callable[[Features], Tensor], variables: Sequence[keras.Variable], distribution: Distribution
) -> Callable[[MakeBatches], Iterator[np.ndarray]]:
    """Return a function from batches to the outputs of a forward pass, an array [batch_size, ...] per batch."""

    def outputs(values: list[Tensor], features: Features) -> Tensor:
        with with_values(variables, values):
            return jax.lax.all_gather(function(features), DATA, tiled=True)

    step = jax.jit(distribution.shard_map(outputs, (PartitionSpec(), PartitionSpec(DATA)), PartitionSpec()))

    def run(make: MakeBatches) -> Iterator[np.ndarray]:
        values = place(variables, distribution)
        with distribution.batches(make) as batches:
            for features in batches:
                yield np.asarray(step(values, features))

    return run


def compiled(
    function: Callable[..., Any], variables: Sequence[keras.Variable], *, once: bool = False
) -> Callable[..., Any]:
    """Return a compiled forward pass on the first device of this process, from and to structures of numpy arrays."""
    del once  # Running operation by operation would compile every operation.

    @jax.jit
    def step(values: list[Tensor], inputs: tuple[Any, ...]) -> Any:
        with with_values(variables, values):
            return function(*inputs)

    def run(*inputs: Any) -> Any:
        # An array with a copy on every device has one on this process's first device.
        values = [variable.value.addressable_data(0) for variable in variables]
        return jax.device_get(step(values, inputs))

    return run
