"""The operations under TensorFlow: custom gradients, and products that it fuses on a CPU."""

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops

from beambert.bert_model.ops import plain
from beambert.bert_model.ops.plain import layer_normalization, row_major, take_positions, take_rows

__all__ = [
    "attention",
    "cross_entropy",
    "dense",
    "dropout",
    "gelu",
    "layer_normalization",
    "row_major",
    "take_positions",
    "take_rows",
]

Tensor = Any


def dropout(inputs: Tensor, rate: float, seed: Tensor | None) -> Tensor:
    """As `plain.dropout`, with 16 random bits per element: half of the cost of a random float."""
    if seed is None or rate == 0:
        return inputs
    scale = ops.cast(1.0 / (1.0 - rate), inputs.dtype)
    # The rate is accurate to 8e-6.
    kept = _random_bits(ops.shape(inputs), seed) >= ops.cast(round(rate * 2**16), "uint16")
    return inputs * (ops.cast(kept, inputs.dtype) * scale)


def _random_bits(shape: tuple[Any, ...], seed: Tensor) -> Tensor:
    """Return uniformly distributed uint16 of a shape."""
    length = shape[-1]
    words = tf.random.stateless_uniform(
        (*shape[:-1], (length + 1) // 2), ops.cast(seed, "int32"), None, None, tf.uint32
    )
    halves = tf.bitcast(words, tf.uint16)  # [..., ceil(length / 2), 2]
    bits = ops.reshape(halves, (*shape[:-1], (length + 1) // 2 * 2))  # [..., length or length + 1]
    return bits if isinstance(length, int) and length % 2 == 0 else bits[..., :length]


# Plain attention with the dropout of this module.
attention = functools.partial(plain.attention, dropout=dropout)


def dense(inputs: Tensor, kernel: Tensor, bias: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """As `plain.dense`, as a product of two matrices, which TensorFlow fuses with bias and activation on a CPU."""
    if len(inputs.shape) <= 2:
        return plain.dense(inputs, kernel, bias, activation)
    *leading, size = ops.shape(inputs)
    outputs = plain.dense(ops.reshape(inputs, (-1, size)), kernel, bias, activation)
    return ops.reshape(outputs, (*leading, kernel.shape[-1]))


def gelu(inputs: Tensor) -> Tensor:
    """As `plain.gelu`, computed with (1 + tanh(z)) / 2 = sigmoid(2z).

    The library's form has a power that makes it five times slower on a CPU. The gradient needs one saved tensor instead
    of four.
    """
    scale = 2.0 * math.sqrt(2.0 / math.pi)

    @ops.custom_gradient
    def with_gradient(inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        share = ops.sigmoid(inputs * (scale + (scale * 0.044715) * (inputs * inputs)))
        outputs = inputs * share

        def gradient(upstream: Tensor) -> Tensor:
            slope = scale + (3.0 * scale * 0.044715) * (inputs * inputs)
            return upstream * (share + (outputs - outputs * share) * slope)

        return outputs, gradient

    return with_gradient(inputs)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """As `plain.cross_entropy`, with its own gradient.

    Automatic differentiation of log-sum-exp takes twice as long on a CPU. The library's sparse form, whose
    deterministic gradient scatters into the logits, takes three times as long.
    """
    labels = ops.cast(labels, "int32")

    @ops.custom_gradient
    def with_gradient(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        probabilities = ops.softmax(logits, axis=-1)  # [..., C]
        # The maximum probability is exp(0) / sum(exp(logits - maximum)), at least 1 / C.
        log_sum = -ops.log(ops.max(probabilities, axis=-1))  # [...], of exp(logits - maximum)
        label_logits = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]  # [...]

        def gradient(upstream: Tensor) -> Tensor:
            one_hot = ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype)  # [..., C]
            return (probabilities - one_hot) * ops.expand_dims(upstream, -1)

        # The logits are subtracted first, so that large logits do not cancel the sum.
        return (ops.max(logits, axis=-1) - label_logits) + log_sum, gradient

    return with_gradient(logits)
