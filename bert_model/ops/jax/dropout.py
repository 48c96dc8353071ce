"""Dropout under JAX: one hash per element, of seed, call site and position.

XLA's generators draw the numbers of a whole tensor in one operation, which neither partitions over devices nor fuses.
This hash is element-wise arithmetic: it fuses with the operation around it, and with a seed per example the mask of an
example is the same for any number of devices, hosts and micro-batches. Its reason is the cost: dropout of 32 x 12 x 128
x 128 probabilities takes 20 ms on two CPU cores, and 245 ms with `jax.random.bernoulli` (JAX 0.10, 2026-11-28).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

# A 32-bit bijection with shifts 16, 15, 15, found by TheIronBorn with Christopher Wellons's hash-prospector, where it
# had the lowest measured bias of two rounds (github.com/skeeto/hash-prospector, public domain).
_MULTIPLIERS = (0x21F0AAAD, 0x735A2D97)
# 2**32 divided by the golden ratio.
_GOLDEN = 0x9E3779B9


def dropout(inputs: jax.Array, rate: float, seed: jax.Array | None) -> jax.Array:
    """As `beambert.bert_model.ops.plain.dropout`, with the mask of `keep_mask`."""
    if seed is None or rate == 0:
        return inputs
    scale = jnp.asarray(1.0 / (1.0 - rate), inputs.dtype)
    return jnp.where(keep_mask(inputs.shape, rate, jnp.asarray(seed, jnp.int32)), inputs * scale, 0)


def keep_mask(shape: tuple[int, ...], rate: float, seed: jax.Array) -> jax.Array:
    """Return which elements dropout keeps.

    Args:
        shape: shape of the inputs, [B, ...] with a seed per example.
        rate: dropout rate, in [0, 1).
        seed: int32 [2], or int32 [B, 2] for one seed per example; the mask of an example then depends only on its
            seed and the shape of an example.

    Returns:
        bool of the shape.
    """
    keys = mix_pair(seed[..., 0], seed[..., 1])
    key_0, key_1 = (key.reshape(key.shape + (1,) * (len(shape) - key.ndim)) for key in keys)
    words = key_0
    for axis in range(seed.ndim - 1, len(shape)):
        along_axis = [size if other == axis else 1 for other, size in enumerate(shape)]
        words += jax.lax.broadcasted_iota(jnp.uint32, along_axis, axis) * stride(shape, axis)
    return jnp.broadcast_to(is_kept(words, key_1, rate), shape)


def stride(shape: tuple[int, ...], axis: int) -> np.uint32:
    """Return how much the words of two neighbors along an axis of a shape differ, modulo 2**32.

    The words are a Weyl sequence: the position in the example, or in the batch with a single seed, times an odd number.
    Without this factor, positions that are a power of two apart are correlated.
    """
    return np.uint32(_GOLDEN * math.prod(shape[axis + 1 :]) % 2**32)


def is_kept(words: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    """Return which elements dropout keeps, bool, from their words and the second key of their seed, both uint32."""
    words = _round(words, 16, _MULTIPLIERS[0]) ^ key
    # The last shift of the bijection is left out: it changes only low bits, and the comparison depends on high ones.
    words = _round(words, 15, _MULTIPLIERS[1])
    return words >= np.uint32(round(rate * 2**32))


def example_seeds(seed: int, step: jax.Array | int, first_example: jax.Array | int, count: int) -> jax.Array:
    """Return the dropout seeds of consecutive examples of a training step, a pure function of the arguments.

    Args:
        seed: the run's random seed, below 2**32.
        step: number of the training step.
        first_example: position of the first example in the global batch of the step.
        count: number of examples.

    Returns:
        int32 [count, 2]. Different steps or examples of a run have different seeds.
    """
    key_0, key_1 = mix_pair(jnp.uint32(seed), _as_word(step))
    examples = _as_word(first_example) + jax.lax.iota(jnp.uint32, count)
    pair = mix_pair(key_0 ^ examples, key_1)
    return jnp.stack(pair, axis=-1).astype(jnp.int32)


def mix_pair(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return two well-mixed words, a bijection of two integers: four rounds of a Feistel network.

    Args:
        first, second: 32-bit integers of shapes that broadcast.

    Returns:
        Two uint32 of the broadcast shape.
    """
    left, right = jnp.broadcast_arrays(_as_word(first), _as_word(second))
    for number in range(1, 5):
        left, right = right ^ _mix(left + jnp.uint32(number * _GOLDEN % 2**32)), left
    return left, right


def _mix(words: jax.Array) -> jax.Array:
    """Return a bijection of uint32 in which each bit of the result depends on each bit of the argument."""
    words = _round(_round(words, 16, _MULTIPLIERS[0]), 15, _MULTIPLIERS[1])
    return words ^ (words >> 15)


def _round(words: jax.Array, shift: int, multiplier: int) -> jax.Array:
    return (words ^ (words >> np.uint32(shift))) * np.uint32(multiplier)


def _as_word(number: jax.Array | int) -> jax.Array:
    return jnp.asarray(number).astype(jnp.uint32)
