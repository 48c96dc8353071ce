"""Compute stateless random numbers: hashes of seed, position and purpose instead of draws from a generator.

A number does not depend on the numbers drawn before it, so that batches, replicas and resumed runs all use the same
numbers. numpy does not guarantee the streams of its generators across versions; these hashes are defined here. The
mixing function is that of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA
2014, figure 17). Each input adds a multiple of 2**64 divided by the golden ratio to the state and applies the mixing
function.
"""

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)


def stateless_hash(*numbers: int | np.ndarray) -> np.ndarray:
    """Return the hash of one or more numbers.

    Args:
        numbers: integers from 0 to 2**64 - 1, scalars or arrays that broadcast.

    Returns:
        uint64 of the broadcast shape, [1] if all are scalars.
    """
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = extend_hash(state, number)
    return state


def extend_hash(keys: np.ndarray, number: int | np.ndarray) -> np.ndarray:
    """Return `stateless_hash` with a further number appended to those of the keys.

    Args:
        keys: uint64, at least one dimension, results of `stateless_hash`.
        number: integers from 0 to 2**64 - 1, a scalar or an array that broadcasts with the keys.

    Returns:
        uint64 of the broadcast shape.
    """
    # Arrays wrap around modulo 2**64 silently; scalars raise a warning.
    state = keys + (np.atleast_1d(np.asarray(number, np.uint64)) + np.uint64(1)) * np.uint64(_GOLDEN)
    # In place: with many keys, allocating arrays takes longer than the arithmetic.
    shifted = np.empty_like(state)
    for shift, multiplier in zip(_SHIFTS, _MULTIPLIERS, strict=False):
        state ^= np.right_shift(state, np.uint64(shift), out=shifted)
        state *= np.uint64(multiplier)
    state ^= np.right_shift(state, np.uint64(_SHIFTS[-1]), out=shifted)
    return state


def permutation(key: int, count: int) -> np.ndarray:
    """Return a permutation of `count` items, int64 [count], determined by the key."""
    return np.argsort(stateless_hash(key, np.arange(count)), kind="stable")
