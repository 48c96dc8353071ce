"""The memory layout of hidden states under JAX."""

import jax
from jax.experimental.layout import Layout, with_layout_constraint


def row_major(hidden: jax.Array) -> jax.Array:
    """Return hidden states [B, S, H] with the vector of a position contiguous in memory, and so their gradient.

    On GPUs the compiler otherwise stores the batch axis contiguously, because the gradient of the position embeddings
    is a sum over it, and transposes the inputs and outputs of most matrix products.
    """
    return with_layout_constraint(hidden, Layout(major_to_minor=tuple(range(hidden.ndim))))
