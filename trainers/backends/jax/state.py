"""Move the values of Keras variables between the variables and functions of JAX, which take them as arguments."""

from collections.abc import Sequence
from typing import Any

import jax
import keras

from trainers.backends.jax.distribution import Distribution


def with_values(variables: Sequence[keras.Variable], values: Sequence[Any]) -> keras.StatelessScope:
    """Return a context in which variables have the given values, which may be traced."""
    return keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True)))


def place(variables: Sequence[keras.Variable], distribution: Distribution) -> list[jax.Array]:
    """Return the values of variables with a copy on every device, where they stay."""
    values = [distribution.on_all_devices(variable.value) for variable in variables]
    assign(variables, values)
    return values


def assign(variables: Sequence[keras.Variable], values: Sequence[jax.Array]) -> None:
    """Assign arrays to variables without copying them."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
