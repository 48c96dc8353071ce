"""The compiled training step of the JAX backend for the chips of a TPU topology, with the shapes of its arguments."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding

from beambert.trainers.backends.jax.distribution import Distribution
from beambert.trainers.backends.jax.optimizer_sharding import slot_spec
from beambert.trainers.backends.jax.train_step import Trainer
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.optimizers import OptimizerState
from beambert.trainers.options import TrainingOptions


class Step(NamedTuple):
    """A jitted function and the shapes of its arguments, with their shardings.

    Every device donates `state_bytes`. Gradients of `gradient_bytes` are summed over `devices`, and updated weights of
    `gathered_bytes` are gathered.
    """

    function: Any
    arguments: tuple[Any, ...]
    gradient_bytes: int
    state_bytes: int
    gathered_bytes: int
    devices: int


@functools.cache
def distribution_of(topology: str) -> Distribution:
    """Return the devices of a topology, such as "v5e:2x4"."""
    # The default, four chips per host, does not divide a slice of one chip.
    bounds = {"chips_per_host_bounds": (1, 1, 1)} if topology.endswith(":1x1") else {}
    return Distribution(topologies.get_topology_desc(platform="tpu", topology_name=topology, **bounds).devices)


def train_step(
    objective: Objective,
    config: TrainingOptions,
    distribution: Distribution,
    features: Mapping[str, np.ndarray],
    per_device: int,
) -> Step:
    """Return the training step of an objective.

    Args:
        objective: objective of a model with variables on the CPU.
        config: options of the step.
        distribution: devices of a topology.
        features: a batch of any size, of which only the shapes and dtypes of a row are used.
        per_device: examples per device and step.
    """
    trainer = Trainer(objective, config, distribution)
    weights = {name: shape_of(variable, distribution.replicated) for name, variable in objective.variables.items()}
    state = {}
    for name, weight in weights.items():
        sharding = NamedSharding(distribution.mesh, slot_spec(trainer.slot_axes.get(name)))
        slot = shape_of(objective.variables[name], sharding)
        state[name] = OptimizerState(weight, slot, slot)
    frozen = [shape_of(variable, distribution.replicated) for variable in objective.frozen.values()]
    step = jax.ShapeDtypeStruct((), np.int32, sharding=distribution.replicated)
    size = sum(_bytes_of(weight) for weight in weights.values())
    sharded_size = sum(_bytes_of(weights[name]) for name in trainer.slot_axes)
    state_size = 3 * size - 2 * sharded_size + 2 * sharded_size // distribution.replicas
    batch = global_batch(features, distribution, per_device)
    arguments = (state, frozen, step, batch)
    return Step(trainer.compiled_step(), arguments, size, state_size, sharded_size, distribution.replicas)


def global_batch(features: Mapping[str, np.ndarray], distribution: Distribution, per_device: int) -> dict[str, Any]:
    """Return the shapes of a batch with `per_device` examples on every device."""
    size = per_device * distribution.replicas
    return {
        name: jax.ShapeDtypeStruct((size, *values.shape[1:]), values.dtype, sharding=distribution.by_example)
        for name, values in features.items()
    }


def _bytes_of(shape: jax.ShapeDtypeStruct) -> int:
    return int(shape.size * shape.dtype.itemsize)


def shape_of(variable: keras.Variable, sharding: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a variable with a sharding."""
    return jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype, sharding=sharding)
