"""The operations under JAX: own gradients, dropout by a hash, deterministic look-ups, an attention kernel for GPUs."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.experimental.layout import Layout, with_layout_constraint

from beambert.bert_model.ops.jax import gradients, lookup
from beambert.bert_model.ops.jax.dropout import dropout
from beambert.bert_model.ops.jax.gradients import gelu
from beambert.bert_model.ops.plain import rematerialized

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


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array,
    seed: jax.Array | None = None,
    rate: float = 0.0,
    *,
    rematerialize: bool = False,
) -> jax.Array:
    """As `plain.attention`: one kernel on a GPU that can run it, where it supports dtype and shapes.

    The kernel stores neither scores nor probabilities, so that nothing has to be rematerialized.
    """
    if has_attention_kernel():
        from beambert.bert_model.ops.jax import flash_attention

        if flash_attention.is_supported(query, key, seed):
            return flash_attention.attention(query, key, value, bias, seed, rate)

    def mix(query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array, seed: jax.Array | None) -> jax.Array:
        scores = jnp.matmul(jnp.transpose(query, (0, 2, 1, 3)), jnp.transpose(key, (0, 2, 3, 1)))  # [B, A, Q, S]
        probabilities = gradients.softmax(scores, bias.astype(jnp.float32)).astype(value.dtype)
        context = jnp.matmul(dropout(probabilities, rate, seed), jnp.transpose(value, (0, 2, 1, 3)))  # [B, A, Q, D]
        return jnp.transpose(context, (0, 2, 1, 3))

    return (rematerialized(mix) if rematerialize else mix)(query, key, value, bias, seed)


@functools.cache
def has_attention_kernel() -> bool:
    """Return whether JAX's first device runs `flash_attention.py`: an NVIDIA GPU with bfloat16 products (Ampere)."""
    try:
        return float(jax.local_devices()[0].compute_capability) >= 8.0
    except (AttributeError, ValueError):  # A CPU or TPU; an AMD GPU.
        return False


def dense(
    inputs: jax.Array,
    kernel: jax.Array,
    bias: jax.Array,
    activation: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """As `plain.dense`, with the gradient of the bias summed in float32."""
    outputs = gradients.add_bias(jnp.matmul(inputs, _value(kernel)), _value(bias))
    return outputs if activation is None else activation(outputs)


def layer_normalization(inputs: jax.Array, gamma: jax.Array, beta: jax.Array, epsilon: float) -> jax.Array:
    """As `plain.layer_normalization`, in float32 for inputs of any type, with its own gradient."""
    return gradients.layer_normalization(inputs.astype(jnp.float32), _value(gamma), _value(beta), epsilon)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """As `plain.cross_entropy`, with its own gradient."""
    return gradients.cross_entropy(logits, labels.astype(jnp.int32))


def take_rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    """As `plain.take_rows`, with a gradient that is fast and deterministic on GPUs; NaN for ids beyond the table."""
    return lookup.take_rows(_value(table), ids)


def take_positions(values: jax.Array, positions: jax.Array) -> jax.Array:
    """As `plain.take_positions`, with a gradient that is fast and deterministic on GPUs."""
    return lookup.take_positions(values, positions)


def row_major(hidden: jax.Array) -> jax.Array:
    """As `plain.row_major`, for the gradient too.

    On GPUs the compiler otherwise stores the batch axis contiguously, because the gradient of the position embeddings
    is a sum over it, and transposes the inputs and outputs of most matrix products.
    """
    return with_layout_constraint(hidden, Layout(major_to_minor=tuple(range(hidden.ndim))))


def _value(variable: Any) -> jax.Array:
    """Return the value of a Keras variable, in the type of the layer that reads it; arrays are returned unchanged."""
    return variable.value if isinstance(variable, keras.Variable) else variable
