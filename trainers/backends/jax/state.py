"""Move the values of Keras variables between the variables and functions of JAX, which take them as arguments."""

from collections.abc import Sequence
from typing import Any

import jax
import keras
from jax.sharding import PartitionSpec

from beambert.trainers.backends.jax.distribution import Distribution


def with_values(variables: Sequence[keras.Variable], values: Sequence[Any]) -> keras.StatelessScope:
    """Return a context in which variables have the given values, which may be traced."""
    return keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True)))


def place(
    variables: Sequence[keras.Variable], distribution: Distribution, specs: Sequence[PartitionSpec] | None = None
) -> list[jax.Array]:
    """Return the values of variables on the devices, where they stay.

    Args:
        variables: the variables.
        distribution: the devices.
        specs: how each variable is distributed; None for a copy on every device.
    """
    specs = specs or [PartitionSpec()] * len(variables)
    values = [distribution.on_devices(variable.value, spec) for variable, spec in zip(variables, specs, strict=True)]
    assign(variables, values)
    return values


def assign(variables: Sequence[keras.Variable], values: Sequence[jax.Array]) -> None:
    """Assign arrays to variables without copying them."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
