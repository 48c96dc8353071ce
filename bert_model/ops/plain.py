"""The operations in functions of `keras.ops`: the definition of each, and the form without anything faster."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

Tensor = Any


def fold_in(seed: Tensor | None, site: int) -> Tensor | None:
    """Return the dropout seed of a call site.

    Sites are numbered consecutively through a model: fold_in(fold_in(seed, a), b) equals fold_in(seed, a + b).

    Args:
        seed: int32 [2], or under JAX int32 [B, 2], one seed per example; None for no dropout.
        site: number of the call site, or of the first call site of a layer.

    Returns:
        int32 of the shape of `seed`, or None if `seed` is None.
    """
    if seed is None:
        return None
    return ops.add(ops.cast(seed, "int32"), ops.convert_to_tensor([0, site], dtype="int32"))


def dropout(inputs: Tensor, rate: float, seed: Tensor | None) -> Tensor:
    """Set elements to 0 with probability `rate`, and scale the others by 1 / (1 - rate).

    The mask is a pure function of the seed, which includes the number of the call site. There is no state between
    calls, so activation checkpointing, resumed runs and other replicas reproduce the masks of their seeds.

    Args:
        inputs: float tensor of any shape, [B, ...] with a seed per example.
        rate: dropout rate, in [0, 1).
        seed: int32 [2], or under JAX int32 [B, 2], one seed per example; None, as in evaluation, for unchanged inputs.

    Returns:
        Tensor of the shape and dtype of `inputs`. The mask differs between forms. This one draws it with NumPy, so
        the seed must have a value: it runs eagerly, not in a compiled function.
    """
    if seed is None or rate == 0:
        return inputs
    seeds = ops.convert_to_numpy(seed).astype(np.uint32)
    if seeds.ndim == 1:
        uniform = np.random.default_rng(seeds).random(inputs.shape)
    else:
        uniform = np.stack([np.random.default_rng(seed).random(inputs.shape[1:]) for seed in seeds])
    return ops.where(uniform >= rate, inputs / (1 - rate), 0)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    seed: Tensor | None = None,
    rate: float = 0.0,
    *,
    rematerialize: bool = False,
    dropout: Callable[[Tensor, float, Tensor | None], Tensor] = dropout,
) -> Tensor:
    """Return dropout(softmax(query key^T + bias)) value for each head.

    Args:
        query: float [B, Q, A, D], scaled by 1 / sqrt(D).
        key, value: float [B, S, A, D].
        bias: float [B, 1, 1 or Q, S], without gradient.
        seed: dropout seed, as for `dropout`.
        rate: dropout rate of the probabilities.
        rematerialize: whether the backward pass computes scores and probabilities, of size B A Q S, again.
        dropout: implementation of `dropout`.

    Returns:
        [B, Q, A, D] in the type of `value`.
    """

    def mix(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, seed: Tensor | None) -> Tensor:
        probabilities = ops.cast(attention_probabilities(query, key, bias), value.dtype)  # [B, A, Q, S]
        context = ops.matmul(dropout(probabilities, rate, seed), ops.transpose(value, (0, 2, 1, 3)))  # [B, A, Q, D]
        return ops.transpose(context, (0, 2, 1, 3))

    return (rematerialized(mix) if rematerialize else mix)(query, key, value, bias, seed)


def attention_probabilities(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    """Return softmax(query key^T + bias), float32 [B, A, Q, S]; the arguments are those of `attention`."""
    scores = ops.matmul(ops.transpose(query, (0, 2, 1, 3)), ops.transpose(key, (0, 2, 3, 1)))  # [B, A, Q, S]
    return ops.softmax(ops.cast(scores, "float32") + ops.cast(bias, "float32"), axis=-1)


def rematerialized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with only its arguments stored for the backward pass; an argument may be None."""

    def run(*arguments: Any) -> Any:
        # tf.recompute_grad, which Keras calls, accepts only tensors.
        present_indices = [index for index, argument in enumerate(arguments) if argument is not None]

        def with_nones(*tensors: Any) -> Any:
            present = dict(zip(present_indices, tensors, strict=True))
            return function(*(present.get(index) for index in range(len(arguments))))

        return keras.remat(with_nones)(*(arguments[index] for index in present_indices))

    return run


def dense(inputs: Tensor, kernel: Tensor, bias: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return activation(inputs kernel + bias), float [..., N], for inputs [..., M], kernel [M, N] and bias [N]."""
    outputs = ops.add(ops.matmul(inputs, kernel), bias)
    return outputs if activation is None else activation(outputs)


def layer_normalization(inputs: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Return the layer normalization over the last axis: (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    Args:
        inputs: float [..., H].
        gamma, beta: float32 [H].
        epsilon: added to the variance.

    Returns:
        float32 [..., H].
    """
    return ops.cast(ops.layer_normalization(inputs, gamma, beta, -1, epsilon), "float32")


def gelu(inputs: Tensor) -> Tensor:
    """Return GELU in the tanh form of the released code: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    return inputs * (0.5 * (1.0 + ops.tanh(math.sqrt(2.0 / math.pi) * (inputs + 0.044715 * inputs * inputs * inputs))))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log softmax(logits)[label], in nats.

    Args:
        logits: float32 [..., C].
        labels: int [...], in [0, C).

    Returns:
        float32 [...].
    """
    log_probabilities = ops.log_softmax(logits, axis=-1)
    return -ops.take_along_axis(log_probabilities, ops.expand_dims(ops.cast(labels, "int32"), -1), axis=-1)[..., 0]


def take_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Return rows of an embedding table: float32 [..., H], for a table [V, H] and ids int [...] in [0, V)."""
    return ops.take(table, ids, axis=0)


def take_positions(values: Tensor, positions: Tensor) -> Tensor:
    """Return the vectors of each example at its positions.

    Args:
        values: [B, S, H].
        positions: int [B, Q], indices into S.

    Returns:
        [B, Q, H].
    """
    batch, length, size = ops.shape(values)
    flat = ops.reshape(values, (batch * length, size))  # [B * S, H]
    first = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)  # [B, 1]
    return ops.take(flat, ops.cast(positions, "int32") + first, axis=0)  # [B, Q, H]


def row_major(hidden: Tensor) -> Tensor:
    """Return hidden states [B, S, H] with the vector of a position contiguous in memory."""
    return hidden
