"""Apply an optimizer to the variables of a model: weight decay and learning rates by name, and clipping.

All arithmetic uses keras.ops, so that every backend runs the same formulas.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from beambert.bert_model.size import is_padded, without_padding
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.update_rules import OPTIMIZERS, Slots, VariablePart
from beambert.trainers.options import OptimizerOptions

Tensor = Any

# The exclusions of `create_optimizer` in optimization.py of google-research/bert, matched anywhere in a name.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
_LAYER = re.compile(r"^bert/encoder/layer_(\d+)/")
_EMBEDDINGS = "bert/embeddings/"


def is_decayed(name: str) -> bool:
    """Return whether weight decay applies to a variable, that is, not to layer normalization and biases."""
    return _NOT_DECAYED.search(name) is None


def rate_factors(names: Sequence[str], options: OptimizerOptions) -> dict[str, float]:
    """Return the learning-rate factor of each variable, the product of a layer factor and a name factor.

    With d = layerwise_lr_decay and L encoder layers, numbered from 0, the factor of layer l is d ** (L - l). The factor
    of the embeddings is d ** (L + 1), and that of pooler and heads is 1. The output matrix of the masked-LM head is the
    word embedding.

    The name factor is that of the first expression in lr_multiplier that matches the name (`re.search`), or 1. A
    factor of 0 freezes a variable, including weight decay.

    Args:
        names: TF1 names of all trained variables.
        options: options with layerwise_lr_decay and lr_multiplier.

    Returns:
        Factor by name, in the order of `names`.

    Raises:
        TrainingError: an expression matches no name, or only names that an earlier expression matches.
    """
    layers = {name: int(match[1]) for name in names if (match := _LAYER.match(name))}
    layer_count = max(layers.values(), default=-1) + 1
    multipliers = [(re.compile(pattern), factor) for pattern, factor in options.lr_multiplier]
    used = set()
    factors = {}
    for name in names:
        depth = layer_count + 1 if name.startswith(_EMBEDDINGS) else layer_count - layers.get(name, layer_count)
        factors[name] = options.layerwise_lr_decay**depth
        for pattern, factor in multipliers:
            if pattern.search(name):
                factors[name] *= factor
                used.add(pattern)
                break
    for pattern, _ in multipliers:
        if pattern not in used:
            raise TrainingError(
                f"invalid --lr_multiplier {pattern.pattern}: matches no variable, or only variables matched by an "
                f"earlier expression; variable names look like {names[0]}"
            )
    return factors


class VariableState(NamedTuple):
    """The values that an optimizer updates together: a variable and its slots, float32 of one shape."""

    weight: Tensor
    slots: Slots


@dataclass(frozen=True)
class WholeVariable:
    """A `VariablePart` that is the whole variable.

    Args:
        name: TF1 name of the variable.
        vocab_size: rows without vocabulary padding; None for no padding.
    """

    name: str
    vocab_size: int | None

    def norm(self, values: Tensor) -> Tensor:
        """Return the Euclidean norm without vocabulary padding."""
        return ops.sqrt(ops.sum(ops.square(without_padding(self.name, values, self.vocab_size))))

    def on_whole(self, function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """Return the result of the function."""
        return function(values)


class Optimizer:
    """An optimizer with its slots.

    Args:
        variables: trained float32 variables by TF1 name.
        options: name of the optimizer, and its hyperparameters.
        vocab_size: vocabulary size if variables are padded beyond it (`bert_model/size.py`); norms exclude padding
            rows. None without padding.

    Attributes:
        variables: the variables by TF1 name.
        rules: update rule of each variable.
        slots: float32 variables by name, `<variable>/<slot>`. They are created in the current scope, so under a
            strategy they are placed with the variables.

    Raises:
        TrainingError: an expression in lr_multiplier matches no variable.
    """

    def __init__(
        self, variables: Mapping[str, keras.Variable], options: OptimizerOptions, vocab_size: int | None = None
    ) -> None:
        self.variables = dict(variables)
        self.options = options
        self.vocab_size = vocab_size
        self.rules = {name: OPTIMIZERS[options.optimizer].of_variable(name, options) for name in self.variables}
        self.slots = {
            f"{name}/{slot.name}": keras.Variable(
                keras.initializers.Constant(slot.initial),
                shape=tuple(variable.shape),
                dtype="float32",
                trainable=False,
                autocast=False,
            )
            for name, variable in self.variables.items()
            for slot in self.rules[name].slots
        }
        self._rate_factors = rate_factors(list(self.variables), options)
        first: dict[Any, str] = {}
        self._first_alike = {
            name: first.setdefault(
                (tuple(variable.shape), self.rules[name], is_decayed(name), factor, is_padded(name)), name
            )
            for (name, variable), factor in zip(self.variables.items(), self._rate_factors.values(), strict=True)
        }

    def slots_of(self, name: str) -> tuple[keras.Variable, ...]:
        """Return the slots of a variable, in the order of their declaration."""
        return tuple(self.slots[f"{name}/{slot.name}"] for slot in self.rules[name].slots)

    def first_alike(self, name: str) -> str:
        """Return the first variable whose `update` is the same function, so that it is compiled once for all."""
        return self._first_alike[name]

    def update(
        self,
        name: str,
        state: VariableState,
        gradient: Tensor,
        rate: Tensor,
        step: Tensor,
        part: VariablePart | None = None,
    ) -> VariableState:
        """Return the state of a variable after a step.

        Args:
            name: TF1 name of the variable.
            state: the variable and its slots.
            gradient: clipped gradient, float32 of the variable's shape.
            rate: float32 scalar, learning rate.
            step: int scalar, number of earlier steps, including skipped ones.
            part: the part of the variable that state and gradient have; None for the whole.
        """
        part = part or WholeVariable(name, self.vocab_size)
        direction, slots = self.rules[name].update(state.slots, gradient, step, part)
        return VariableState(state.weight - self._change(name, state.weight, direction, rate, part), slots)

    def last_change(self, name: str, state: VariableState, rate: Tensor, step: Tensor) -> Tensor | None:
        """Return what a step subtracted from a variable, approximately, from its state after the step.

        Args:
            name, rate, step: as for `update`.
            state: the variable and its slots after the step.

        Returns:
            float32 of the variable's shape; None if the state does not determine it.
        """
        part = WholeVariable(name, self.vocab_size)
        direction = self.rules[name].last_direction(state.slots, step, part)
        return None if direction is None else self._change(name, state.weight, direction, rate, part)

    def _change(self, name: str, weight: Tensor, direction: Tensor, rate: Tensor, part: VariablePart) -> Tensor:
        """Return what a step in a direction subtracts from a variable."""
        rate = rate * self._rate_factors[name]
        if is_decayed(name):
            direction = direction + self.options.weight_decay * weight
            rate = rate * self.rules[name].trust_ratio(weight, direction, part)
        return rate * direction


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of at least one gradient, as one vector: float32 scalar."""
    return ops.sqrt(sum_of_squares(gradients))


def clip_factor(norm: Tensor, clip_norm: float) -> Tensor:
    """Return the factor of at most 1 that scales gradients of a global norm down to a maximum, float32 scalar.

    With a non-finite norm, it is NaN: an infinite norm would scale finite gradients to 0.
    """
    return ops.where(ops.isfinite(norm), clip_norm / ops.maximum(norm, clip_norm), np.float32("nan"))


def sum_of_squares(gradients: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares over all elements of at least one gradient, float32 scalar."""
    # One sum over all variables: TensorFlow's optimizer of graphs reorders a chain of additions from run to run.
    return ops.sum(ops.stack([ops.sum(ops.square(gradient)) for gradient in gradients]))
