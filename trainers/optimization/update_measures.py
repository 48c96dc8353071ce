"""Measure the update-to-weight ratio: the length of a step relative to the weights that it changes."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from beambert.trainers.optimization.optimizers import Optimizer, VariableState

# Two matrices represent a layer. Only the first and the last layer are read, to copy little from an accelerator.
_MATRICES = re.compile(r"bert/encoder/layer_(\d+)/(attention/output/dense|intermediate/dense)/kernel")


class UpdateMeasures(NamedTuple):
    """Measures of a step: |update| / |weights|, and the root mean square of the weights."""

    ratio: float
    weight_rms: float


def measured_matrices(names: Mapping[str, object]) -> list[str]:
    """Return the names of the measured variables: two matrices of the first and the last layer."""
    layers = {name: int(match[1]) for name in names if (match := _MATRICES.fullmatch(name))}
    return [name for name, layer in layers.items() if layer in (min(layers.values()), max(layers.values()))]


def update_measures(optimizer: Optimizer, rate: float, step: int) -> UpdateMeasures | None:
    """Measure the last step, over the matrices of `measured_matrices` as one vector.

    The update is computed from the weights and the optimizer slots after the step, not from a copy of the weights
    before it. The difference, of the order of the squared ratio, is below the precision of any rule about it.

    Args:
        optimizer: optimizer after the step.
        rate: learning rate of the step.
        step: number of earlier steps.

    Returns:
        The measures; None if the matrices cannot be read, as of slots sharded over several processes, if the state does
        not determine the update, or if a value is not finite.
    """
    updates, weights, count = 0.0, 0.0, 0
    for name in measured_matrices(optimizer.variables):
        variables = [optimizer.variables[name], *optimizer.slots_of(name)]
        if not all(map(_is_readable, variables)):
            return None
        # On the host: an operation on arrays of several processes would have to run in all of them.
        weight, *slots = (variable.numpy() for variable in variables)
        state = VariableState(weight, tuple(slots))
        change = optimizer.last_change(name, state, np.float32(rate), np.int32(step))
        if change is None:
            return None
        updates += _square(change)
        weights += _square(state.weight)
        count += state.weight.size
    if not weights > 0 or not np.isfinite(updates + weights):
        return None
    return UpdateMeasures(float(np.sqrt(updates / weights)), float(np.sqrt(weights / count)))


def _square(values: object) -> float:
    return float(np.square(keras.ops.convert_to_numpy(values), dtype=np.float64).sum())


def _is_readable(variable: keras.Variable) -> bool:
    value = variable.value
    return getattr(value, "is_fully_replicated", True) or getattr(value, "is_fully_addressable", True)
