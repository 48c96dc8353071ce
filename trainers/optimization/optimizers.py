"""Implement the optimizers as pure functions: BERT's Adam, AdamW and LAMB; learning-rate schedule and clipping.

All arithmetic uses keras.ops, so that every backend runs the same formulas. For a variable w with clipped gradient g
and learning rate r, all three have two elementwise slots: `<variable>/adam_m` is m = b1 m + (1 - b1) g, and
`<variable>/adam_v` is v = b2 v + (1 - b2) g^2. Then, with weight decay d where `is_decayed` and 0 elsewhere:

bert_adam  w -= r (m / (sqrt(v) + e) + d w)
           `optimization.py` of google-research/bert: no bias correction, epsilon outside the root.
adamw      w -= r (m' / (sqrt(v') + e) + d w), with m' = m / (1 - b1^t), v' = v / (1 - b2^t) in the t-th step
           Loshchilov and Hutter 2019, algorithm 2.
lamb       u = m' / (sqrt(v') + e) + d w;  w -= r u |w| / |u|
           You et al. 2020, algorithm 2, with the identity for phi. The trust ratio |w| / |u| is 1 where a norm is 0,
           and for variables without weight decay, as in the authors' implementation.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from beambert.bert_model.size import is_padded, without_padding
from beambert.trainers.errors import TrainingError
from beambert.trainers.options import LearningRateSchedule, OptimizerOptions

Tensor = Any
SLOTS = ("adam_m", "adam_v")

# The exclusions of `create_optimizer` in optimization.py of google-research/bert, matched anywhere in a name.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
_LAYER = re.compile(r"^bert/encoder/layer_(\d+)/")
_EMBEDDINGS = "bert/embeddings/"


class OptimizerState(NamedTuple):
    """The values that an optimizer updates together: a variable and its slots, float32 of one shape."""

    weight: Tensor
    m: Tensor
    v: Tensor


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


def learning_rate_at(step: Tensor, schedule: LearningRateSchedule) -> Tensor:
    """Return the learning rate of a step: linear warm-up from 0, then the schedule.

    With step t, N training steps, W warm-up steps and peak r, the rate after warm-up is:

    linear    r (1 - t / N)^p. As in the released code, the decay starts at step 0, so that the rate drops at step W
              from about r to r (1 - W / N)^p.
    cosine    r (m + (1 - m) (1 + cos(pi (t - W) / (N - W))) / 2), Loshchilov and Hutter 2017, without restarts.
    constant  r.
    wsd       r, then r (1 - sqrt((t - S) / (N - S))) from the start S of the decay: the 1-sqrt cooldown of Haegele et
              al. 2024 ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", section 3).

    Step 0 of a run with warm-up has rate 0.

    Args:
        step: int scalar, number of completed steps; after the last step, the rate is that of the last step.
        schedule: the schedule, with its peak and its numbers of steps.

    Returns:
        float32 scalar.
    """
    peak, num_train_steps, num_warmup_steps = schedule.known_schedule
    done = ops.cast(ops.minimum(step, num_train_steps), "float32")
    start = schedule.decay_start
    if start is not None:
        progress = ops.maximum(done - start, 0.0) / (num_train_steps - start)
        decayed = peak * (1.0 - ops.sqrt(progress))
    elif schedule.lr_schedule == "constant":
        decayed = peak * ops.ones_like(done)
    elif schedule.lr_schedule == "cosine":
        progress = ops.maximum(done - num_warmup_steps, 0.0) / max(num_train_steps - num_warmup_steps, 1)
        least = schedule.lr_min_fraction
        decayed = peak * (least + (1.0 - least) * 0.5 * (1.0 + ops.cos(math.pi * progress)))
    else:
        # `tf.compat.v1.train.polynomial_decay` to 0 without cycles.
        decayed = peak * ops.power(1.0 - done / num_train_steps, schedule.lr_decay_power)
    if num_warmup_steps == 0:
        return decayed
    return ops.where(done < num_warmup_steps, peak * done / num_warmup_steps, decayed)


def clip_by_global_norm(
    gradients: Sequence[Tensor | None], clip_norm: float | None
) -> tuple[list[Tensor | None], Tensor]:
    """Scale gradients down to a maximum global norm.

    Args:
        gradients: dense gradients; None for a variable that the loss does not depend on.
        clip_norm: maximum global norm; None or 0 disables clipping.

    Returns:
        The gradients, scaled by a common factor of at most 1, and their norm before clipping, a float32 scalar. With a
        non-finite norm, all clipped gradients are NaN.
    """
    norm = ops.sqrt(sum_of_squares([gradient for gradient in gradients if gradient is not None]))
    return clip_by_norm(gradients, norm, clip_norm), norm


def clip_by_norm(gradients: Sequence[Tensor | None], norm: Tensor, clip_norm: float | None) -> list[Tensor | None]:
    """Return the gradients of `clip_by_global_norm` where their global norm is known."""
    if not clip_norm:
        return list(gradients)
    factor = clip_factor(norm, clip_norm)
    return [None if gradient is None else gradient * factor for gradient in gradients]


def clip_factor(norm: Tensor, clip_norm: float) -> Tensor:
    """Return the factor of at most 1 that scales gradients of a global norm down to a maximum, float32 scalar."""
    # An infinite norm would scale finite gradients to 0.
    return ops.where(ops.isfinite(norm), clip_norm / ops.maximum(norm, clip_norm), np.float32("nan"))


def sum_of_squares(gradients: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares over all elements of at least one gradient, float32 scalar."""
    # One sum over all variables: TensorFlow's optimizer of graphs reorders a chain of additions from run to run.
    return ops.sum(ops.stack([ops.sum(ops.square(gradient)) for gradient in gradients]))


class Optimizer:
    """An optimizer with its slots.

    Args:
        variables: trained float32 variables by TF1 name.
        options: the optimizer and its hyperparameters.
        vocab_size: vocabulary size if variables are padded beyond it (`bert_model/size.py`); padding rows are
            excluded from the norms of LAMB. None without padding.

    Attributes:
        variables: the variables by TF1 name.
        slots: float32 variables by name, `<variable>/adam_m` and `<variable>/adam_v`, initially zero. They are created
            in the current scope, so under a strategy they are placed with the variables.

    Raises:
        TrainingError: an expression in lr_multiplier matches no variable.
    """

    def __init__(
        self, variables: Mapping[str, keras.Variable], options: OptimizerOptions, vocab_size: int | None = None
    ) -> None:
        self.variables = dict(variables)
        self.options = options
        self.vocab_size = vocab_size
        self.slots = {
            f"{name}/{slot}": keras.Variable(
                "zeros", shape=tuple(variable.shape), dtype="float32", trainable=False, autocast=False
            )
            for name, variable in self.variables.items()
            for slot in SLOTS
        }
        self._rate_factors = rate_factors(list(self.variables), options)
        first: dict[Any, str] = {}
        self._first_alike = {
            name: first.setdefault((tuple(variable.shape), is_decayed(name), factor, is_padded(name)), name)
            for (name, variable), factor in zip(self.variables.items(), self._rate_factors.values(), strict=True)
        }

    def slots_of(self, name: str) -> tuple[keras.Variable, keras.Variable]:
        """Return the slots m and v of a variable."""
        return self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"]

    def first_alike(self, name: str) -> str:
        """Return the first variable whose `updated` is the same function, so that it is compiled once for all."""
        return self._first_alike[name]

    def updated(
        self,
        name: str,
        state: OptimizerState,
        gradient: Tensor,
        rate: Tensor,
        step: Tensor,
        norm: Callable[[Tensor], Tensor] | None = None,
    ) -> OptimizerState:
        """Return the state of a variable after a step.

        Args:
            name: TF1 name of the variable.
            state: the variable and its slots.
            gradient: clipped gradient, float32 of the variable's shape.
            rate: float32 scalar, learning rate.
            step: int scalar, number of earlier steps, including skipped ones.
            norm: Euclidean norm of a tensor of the variable's shape; None for the norm without vocabulary padding.
        """
        options = self.options
        m = options.adam_beta1 * state.m + (1.0 - options.adam_beta1) * gradient
        v = options.adam_beta2 * state.v + (1.0 - options.adam_beta2) * ops.square(gradient)
        return OptimizerState(
            state.weight - self.step_of(name, OptimizerState(state.weight, m, v), rate, step, norm), m, v
        )

    def step_of(
        self,
        name: str,
        state: OptimizerState,
        rate: Tensor,
        step: Tensor,
        norm: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return what a step subtracts from a variable, float32 of its shape.

        Args:
            name, rate, step, norm: as for `updated`.
            state: the variable before the step, and its slots after it.
        """
        options = self.options
        rate = rate * self._rate_factors[name]
        if options.optimizer == "bert_adam":
            update = state.m / (ops.sqrt(state.v) + options.adam_epsilon)
        else:
            t = ops.cast(step, "float32") + 1.0
            corrected_m = state.m / (1.0 - ops.power(options.adam_beta1, t))
            corrected_v = state.v / (1.0 - ops.power(options.adam_beta2, t))
            update = corrected_m / (ops.sqrt(corrected_v) + options.adam_epsilon)
        if is_decayed(name):
            update = update + options.weight_decay * state.weight
            if options.optimizer == "lamb":
                norm = norm or (lambda values: _norm(without_padding(name, values, self.vocab_size)))
                weight_norm, update_norm = norm(state.weight), norm(update)
                positive = ops.logical_and(weight_norm > 0, update_norm > 0)
                rate = rate * ops.where(positive, weight_norm / update_norm, 1.0)
        return rate * update


def _norm(values: Tensor) -> Tensor:
    return ops.sqrt(ops.sum(ops.square(values)))
