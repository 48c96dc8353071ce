"""Stateless random numbers: a hash of a seed, a position and a column, in place of a generator's next draw.

No draw depends on how many were made before it, so that batches, replicas and resumed runs all see the same. numpy
keeps no promise about its generators' streams between versions; these are defined here. The mixing is that of
SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014, figure 17): every number
takes the state a multiple of 2**64 divided by the golden ratio further and through the output function.
"""

import numpy as np
import tensorflow as tf

_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)


def stateless_hash(*numbers: int | np.ndarray) -> np.ndarray:
    """Return the hash of one or several numbers.

    Args:
        numbers: integers from 0 to 2**64 - 1, scalars or arrays that broadcast.

    Returns:
        uint64 of their shape, [1] if all are scalars.
    """
    state = np.zeros(1, np.uint64)
    for number in numbers:
        # Arrays wrap around modulo 2**64 in silence, scalars do not.
        state = state + (np.atleast_1d(np.asarray(number, np.uint64)) + np.uint64(1)) * np.uint64(_GOLDEN)
        for shift, multiplier in zip(_SHIFTS, _MULTIPLIERS, strict=False):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(multiplier)
        state = state ^ (state >> np.uint64(_SHIFTS[-1]))
    return state


def extend_hash(keys: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return, in the graph, `stateless_hash` with further numbers appended to those of the keys.

    Args:
        keys: uint64, results of `stateless_hash`.
        numbers: integers from 0, of a shape that broadcasts with that of the keys.

    Returns:
        uint64 of the common shape.
    """
    state = keys + (tf.cast(numbers, tf.uint64) + 1) * tf.constant(_GOLDEN, tf.uint64)
    for shift, multiplier in zip(_SHIFTS, _MULTIPLIERS, strict=False):
        state = _shifted(state, shift) * tf.constant(multiplier, tf.uint64)
    return _shifted(state, _SHIFTS[-1])


def permutation(key: int, count: int) -> np.ndarray:
    """Return a permutation of `count` items, int64 [count], by a hash of the key."""
    return np.argsort(stateless_hash(key, np.arange(count)), kind="stable")


def _shifted(state: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64)))
