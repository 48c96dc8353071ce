"""Shard the optimizer state over the devices: each stores an equal part of the slots of every large variable.

This is stage 1 of ZeRO (Rajbhandari et al. 2020). Weights stay replicated. Of a sharded variable a device gets its part
of the summed gradient (reduce-scatter), updates its part of the weight, and gets the parts of the others (all-gather).
Functions of tensors are called on every device (`Distribution.shard_map`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import PartitionSpec

from beambert.bert_model.size import is_padded, without_padding
from beambert.trainers.backends.jax.distribution import DATA
from beambert.trainers.backends.step import Gradients
from beambert.trainers.objective import Sums, Tensor
from beambert.trainers.optimization.optimizers import sum_of_squares

# Smaller variables stay replicated: parts of them would save little memory and cost two collective operations each.
LEAST_ELEMENTS = 1024


def sharded_axes(shapes: Mapping[str, Sequence[int]], devices: int) -> dict[str, int]:
    """Return the axis along which the slots of each variable are sharded: the first with a size that devices divide.

    Args:
        shapes: shape of each variable by name.
        devices: number of devices.

    Returns:
        Axis by name, without the variables that stay replicated: those with fewer than `LEAST_ELEMENTS` elements or
        without such an axis, and all variables on a single device.
    """
    divisible = {
        name: [axis for axis, size in enumerate(shape) if size % devices == 0]
        for name, shape in shapes.items()
        if devices > 1 and math.prod(shape) >= LEAST_ELEMENTS
    }
    return {name: axes[0] for name, axes in divisible.items() if axes}


def slot_spec(axis: int | None) -> PartitionSpec:
    """Return how the slots of a variable are distributed; None for a copy on every device."""
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, DATA)


@dataclass
class Devices:
    """The sums over devices of a step; see `beambert.trainers.backends.step.Replicas`.

    Args:
        count: number of devices.
        axes: axes of the variables whose slots are sharded. Of their summed gradients, a device has its part.
    """

    count: int
    axes: Mapping[str, int]
    share: float = 1.0

    def sum(self, values: Any) -> Any:
        """Return the sums over devices."""
        return jax.lax.psum(values, DATA)

    def sum_gradients(self, gradients: Gradients, loss: Tensor, sums: Sums) -> tuple[Gradients, Tensor, Sums]:
        """Return the sums over devices, of sharded variables this device's part."""
        replicated = {name: gradient for name, gradient in gradients.items() if name not in self.axes}
        replicated, loss, sums = jax.lax.psum((replicated, loss, sums), DATA)
        scattered = {
            name: jax.lax.psum_scatter(gradients[name], DATA, scatter_dimension=axis, tiled=True)
            for name, axis in self.axes.items()
            if name in gradients
        }
        summed = {**replicated, **scattered}
        return {name: summed[name] for name in gradients}, loss, sums

    def norm(self, gradients: Gradients) -> Tensor:
        """Return the norm of summed gradients, of which those of sharded variables are parts; float32 scalar."""
        replicated = [gradient for name, gradient in gradients.items() if name not in self.axes]
        parts = [gradient for name, gradient in gradients.items() if name in self.axes]
        squares = sum_of_squares(replicated) if replicated else 0.0
        if parts:
            squares += jax.lax.psum(sum_of_squares(parts), DATA)
        return jax.numpy.sqrt(squares)


def own_part(value: Tensor, axis: int) -> Tensor:
    """Return this device's part of a replicated value."""
    size = value.shape[axis] // jax.lax.axis_size(DATA)
    return jax.lax.dynamic_slice_in_dim(value, jax.lax.axis_index(DATA) * size, size, axis)


def with_all_parts(value: Tensor, axis: int) -> Tensor:
    """Return the replicated value of which each device has a part."""
    return jax.lax.all_gather(value, DATA, axis=axis, tiled=True)


@dataclass(frozen=True)
class VariableSlice:
    """This device's part of a sharded variable; see `beambert.trainers.optimization.update_rules.VariablePart`.

    Args:
        name: TF1 name of the variable.
        axis: its sharded axis.
        vocab_size: vocabulary size if variables are padded beyond it; None without padding.
    """

    name: str
    axis: int
    vocab_size: int | None

    def norm(self, values: Tensor) -> Tensor:
        """Return the Euclidean norm of the whole, without vocabulary padding."""
        if self.axis != 0:
            values = without_padding(self.name, values, self.vocab_size)
        elif self.vocab_size is not None and is_padded(self.name):
            rows = jax.lax.axis_index(DATA) * len(values) + jax.numpy.arange(len(values))
            values = jax.numpy.where(rows.reshape(-1, *[1] * (values.ndim - 1)) < self.vocab_size, values, 0.0)
        return jax.numpy.sqrt(jax.lax.psum(jax.numpy.sum(jax.numpy.square(values)), DATA))

    def on_whole(self, function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """Return this part of the result of a function of the whole, which every device computes."""
        return own_part(function(with_all_parts(values, self.axis)), self.axis)
