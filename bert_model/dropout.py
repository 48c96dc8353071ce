"""Stateless dropout: the mask is a pure function of a seed pair, which includes the number of the call site.

There is no state between calls, so activation checkpointing, resumed runs and other replicas reproduce the masks of
their seeds.
"""

from typing import Any

import keras
from keras import ops

Tensor = Any


def fold_in(seed: Tensor | None, site: int) -> Tensor | None:
    """Return the seed of a call site.

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

    Args:
        inputs: float tensor of any shape, [B, ...] with a seed per example.
        rate: dropout rate, in [0, 1).
        seed: int32 [2], or under JAX int32 [B, 2], one seed per example; None, as in evaluation, for unchanged inputs.

    Returns:
        Tensor of the shape and dtype of `inputs`.
    """
    if seed is None or rate == 0:
        return inputs
    scale = ops.cast(1.0 / (1.0 - rate), inputs.dtype)
    if keras.backend.backend() == "jax":
        from beambert.bert_model.jax_dropout import keep_mask

        return ops.where(keep_mask(inputs.shape, rate, ops.cast(seed, "int32")), inputs * scale, 0)
    # 16 random bits per element cost half of a random float; the rate is accurate to 8e-6.
    kept = _random_bits(ops.shape(inputs), seed) >= ops.cast(round(rate * 2**16), "uint16")
    return inputs * (ops.cast(kept, inputs.dtype) * scale)


def _random_bits(shape: tuple[Any, ...], seed: Tensor) -> Tensor:
    """Return uniformly distributed uint16 of a shape."""
    import tensorflow as tf

    length = shape[-1]
    words = tf.random.stateless_uniform(
        (*shape[:-1], (length + 1) // 2), ops.cast(seed, "int32"), None, None, tf.uint32
    )
    halves = tf.bitcast(words, tf.uint16)  # [..., ceil(length / 2), 2]
    bits = ops.reshape(halves, (*shape[:-1], (length + 1) // 2 * 2))  # [..., length or length + 1]
    return bits if isinstance(length, int) and length % 2 == 0 else bits[..., :length]
