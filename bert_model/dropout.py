"""Dropout from stateless seeds: the mask is a pure function of a seed pair and the number of the call site.

Nothing is kept between calls, so a recomputed layer, a resumed run or another replica draws exactly the masks
that its seed says.
"""

from typing import Any

import keras

Tensor = Any


class _SeedPair(keras.random.SeedGenerator):
    """Hands one given pair to keras.random, which takes a tensor as a seed in no other way."""

    def __init__(self, pair: Tensor) -> None:
        # The parent's constructor would create a state variable; there is no state here.
        self._pair = pair

    def next(self, ordered: bool = True) -> Tensor:  # noqa: ARG002  (the parent's signature)
        return self._pair


def fold_in(seed: Tensor | None, site: int) -> Tensor | None:
    """The seed of one call site.

    Sites are numbered consecutively through a model: fold_in(fold_in(seed, a), b) is fold_in(seed, a + b).

    Args:
        seed: int32 [2], or None for no dropout.
        site: number of the call site, or of the first of a layer.

    Returns:
        int32 [2], or None if `seed` is None.
    """
    if seed is None:
        return None
    return keras.ops.add(keras.ops.cast(seed, "int32"), keras.ops.convert_to_tensor([0, site], dtype="int32"))


def dropout(inputs: Tensor, rate: float, seed: Tensor | None) -> Tensor:
    """Sets a share `rate` of the elements to 0 and scales the others by 1 / (1 - rate).

    Args:
        inputs: float tensor of any shape.
        rate: share of elements dropped, in [0, 1).
        seed: int32 [2]; None, as in evaluation, returns the inputs as they are.

    Returns:
        Tensor of the shape and dtype of `inputs`.
    """
    if seed is None or rate == 0:
        return inputs
    # JAX takes a pair of uint32 as a key, TensorFlow a pair of int32 as a seed.
    pair = keras.ops.cast(seed, "uint32" if keras.backend.backend() == "jax" else "int32")
    return keras.random.dropout(inputs, rate, seed=_SeedPair(pair))
