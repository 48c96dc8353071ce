"""Self-attention with dropout as one kernel, for GPUs under JAX.

The scores of a block of queries and keys stay in registers (Dao et al. 2022, FlashAttention, algorithms 1 to 4, whose
dropout is here the mask of `dropout.py`): memory has only queries, keys, values, outputs and one number per query.

It exists because no library has such a kernel with dropout: that of jax.nn has none, nor have those of Pallas and cuDNN
a mask that depends only on the seed of an example.

Letters in shapes: B examples, S positions, A heads, D = H / A, Q queries and K keys of a block.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from beambert.bert_model.ops.jax.dropout import is_kept, mix_pair, stride

Residuals = tuple[jax.Array, ...]

# Queries or keys of a block, and the options of the compiler that were fastest for 128 and 512 positions on an H200
# (docs/benchmarks/gpu.md).
_BLOCK = 64
_WARPS = 4
_FORWARD_STAGES = 3
_BACKWARD_STAGES = 2


def is_supported(query: jax.Array, key: jax.Array, seed: jax.Array | None) -> bool:
    """Return whether `attention` computes these queries, keys and dropout; shapes are those of its arguments."""
    _, length, _, size = query.shape
    has_types = query.dtype == jnp.bfloat16 and (seed is None or seed.ndim == 2)
    return has_types and query.shape == key.shape and length % _BLOCK == 0 and size in (32, 64)


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array,
    seed: jax.Array | None = None,
    rate: float = 0.0,
    interpret: bool = False,
) -> jax.Array:
    """Return dropout(softmax(query key^T + bias)) value for each head.

    Args:
        query, key, value: bfloat16 [B, S, A, D], of sizes that `is_supported` accepts.
        bias: float32 [B, 1, 1 or S, S], without gradient.
        seed: int32 [B, 2], seed of the dropout for each example, as in `dropout.keep_mask`; None for no dropout.
        rate: dropout rate of the probabilities.
        interpret: whether to run the kernel without a GPU, slowly, for tests.

    Returns:
        [B, S, A, D] in the type of `value`.
    """
    if seed is None:
        rate, seed = 0.0, jnp.zeros((query.shape[0], 2), jnp.int32)
    keys = jnp.stack(mix_pair(seed[:, 0], seed[:, 1]), axis=-1)  # uint32 [B, 2]
    return _attention(query, key, value, bias.astype(jnp.float32), keys, rate, interpret)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _attention(
    query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array, keys: jax.Array, rate: float, interpret: bool
) -> jax.Array:
    return _attention_forward(query, key, value, bias, keys, rate, interpret)[0]


def _attention_forward(
    query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array, keys: jax.Array, rate: float, interpret: bool
) -> tuple[jax.Array, Residuals]:
    batch, length, heads, _ = query.shape
    outputs, log_sums = pl.pallas_call(
        functools.partial(_forward_kernel, rate=rate),
        grid=(length // _BLOCK, heads, batch),
        in_specs=[*[_of_head(query)] * 3, _of_example(bias), _of_example(keys)],
        out_specs=[_of_head(query), _of_head_numbers(query)],
        out_shape=[
            jax.ShapeDtypeStruct(value.shape, value.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_FORWARD_STAGES),
        interpret=interpret,
        name="attention_forward",
    )(query, key, value, bias, keys)
    return outputs, (query, key, value, bias, keys, outputs, log_sums)


def _attention_backward(rate: float, interpret: bool, saved: Residuals, upstream: jax.Array) -> tuple[Any, ...]:
    query, key, value, bias, keys, outputs, log_sums = saved
    batch, length, heads, _ = query.shape
    # Sum over keys of probability x its gradient, for each query.
    products = jnp.einsum("bsad,bsad->bas", outputs, upstream, preferred_element_type=jnp.float32)  # [B, A, S]
    gradients = pl.pallas_call(
        functools.partial(_backward_kernel, rate=rate),
        grid=(length // _BLOCK, heads, batch),
        in_specs=[
            *[_of_head(query)] * 4,
            *[_of_head_numbers(query)] * 2,
            _of_example(bias),
            _of_example(keys),
        ],
        out_specs=[_of_head(query)] * 3,
        out_shape=[jax.ShapeDtypeStruct(values.shape, values.dtype) for values in (query, key, value)],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_BACKWARD_STAGES),
        interpret=interpret,
        name="attention_backward",
    )(query, key, value, upstream, log_sums, products, bias, keys)
    return *gradients, None, None


_attention.defvjp(_attention_forward, _attention_backward)


def _of_head(values: jax.Array) -> pl.BlockSpec:
    """Return the part of a head of an example, [S, D], of values [B, S, A, D]."""
    _, length, _, size = values.shape
    return pl.BlockSpec((None, length, None, size), lambda _, head, example: (example, 0, head, 0))


def _of_head_numbers(values: jax.Array) -> pl.BlockSpec:
    """Return the part of a head of an example, [S], of numbers [B, A, S]."""
    return pl.BlockSpec((None, None, values.shape[1]), lambda _, head, example: (example, head, 0))


def _of_example(values: jax.Array) -> pl.BlockSpec:
    """Return the part of an example, [2] of keys [B, 2], [S] of a bias [B, 1, 1, S], or [S, S] of [B, 1, S, S]."""
    shape = tuple(None if size == 1 else size for size in values.shape[1:])
    return pl.BlockSpec((None, *shape), lambda _, __, example: (example, *(0,) * len(shape)))


def _forward_kernel(
    query_ref: Any, key_ref: Any, value_ref: Any, bias_ref: Any, keys_ref: Any, output_ref: Any, log_sum_ref: Any,
    *, rate: float,
) -> None:  # fmt: skip
    """Compute the outputs of a block of queries of a head."""
    length, size = query_ref.shape
    rows, head = pl.ds(pl.program_id(0) * _BLOCK, _BLOCK), pl.program_id(1)
    query = query_ref[rows, :]  # [Q, D]

    def add_block(number: Any, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        output, maximum, total = sums
        columns = pl.ds(number * _BLOCK, _BLOCK)
        scores = _scores(query, key_ref, bias_ref, rows, columns)  # [Q, K]
        new_maximum = jnp.maximum(maximum, jnp.max(scores, axis=1))
        correction = jnp.exp(maximum - new_maximum)
        shares = jnp.exp(scores - new_maximum[:, None])
        total = total * correction + jnp.sum(shares, axis=1)
        if rate:
            shares = jnp.where(_kept(keys_ref, head, rows, columns, length, rate), shares, 0.0)
        value = value_ref[columns, :]  # [K, D]
        output = output * correction[:, None] + _product(shares.astype(value.dtype), value)
        return output, new_maximum, total

    zeros = jnp.zeros((_BLOCK, size), jnp.float32)
    start = (zeros, jnp.full(_BLOCK, -jnp.inf, jnp.float32), jnp.zeros(_BLOCK, jnp.float32))
    output, maximum, total = jax.lax.fori_loop(0, length // _BLOCK, add_block, start)
    output_ref[rows, :] = (output * (1.0 / ((1.0 - rate) * total))[:, None]).astype(output_ref.dtype)
    log_sum_ref[rows] = maximum + jnp.log(total)


def _backward_kernel(
    query_ref: Any, key_ref: Any, value_ref: Any, upstream_ref: Any, log_sum_ref: Any, product_ref: Any, bias_ref: Any,
    keys_ref: Any, query_gradient_ref: Any, key_gradient_ref: Any, value_gradient_ref: Any, *, rate: float,
) -> None:  # fmt: skip
    """Compute the gradients of a block of keys and values, and of the queries of the same positions."""
    length, size = query_ref.shape
    own, head = pl.ds(pl.program_id(0) * _BLOCK, _BLOCK), pl.program_id(1)

    def gradients_of(rows: Any, columns: Any) -> tuple[jax.Array, ...]:
        """Return queries, keys and upstream gradients of a block, dropped probabilities and gradients of scores."""
        query, upstream = query_ref[rows, :], upstream_ref[rows, :]  # [Q, D]
        scores = _scores(query, key_ref, bias_ref, rows, columns)  # [Q, K]
        shares = jnp.exp(scores - log_sum_ref[rows][:, None])
        of_shares = _product(upstream, value_ref[columns, :].T)  # [Q, K]
        dropped = shares
        if rate:
            kept = _kept(keys_ref, head, rows, columns, length, rate)
            dropped = jnp.where(kept, shares * (1.0 / (1.0 - rate)), 0.0)
            of_shares = jnp.where(kept, of_shares * (1.0 / (1.0 - rate)), 0.0)
        of_scores = shares * (of_shares - product_ref[rows][:, None])
        return query, upstream, dropped.astype(query.dtype), of_scores.astype(query.dtype)

    def add_queries(number: Any, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        query, upstream, dropped, of_scores = gradients_of(pl.ds(number * _BLOCK, _BLOCK), own)
        return sums[0] + _product(of_scores.T, query), sums[1] + _product(dropped.T, upstream)

    def add_keys(number: Any, total: jax.Array) -> jax.Array:
        columns = pl.ds(number * _BLOCK, _BLOCK)
        return total + _product(gradients_of(own, columns)[3], key_ref[columns, :])

    zeros = jnp.zeros((_BLOCK, size), jnp.float32)
    of_key, of_value = jax.lax.fori_loop(0, length // _BLOCK, add_queries, (zeros, zeros))
    of_query = jax.lax.fori_loop(0, length // _BLOCK, add_keys, zeros)
    query_gradient_ref[own, :] = of_query.astype(query_gradient_ref.dtype)
    key_gradient_ref[own, :] = of_key.astype(key_gradient_ref.dtype)
    value_gradient_ref[own, :] = of_value.astype(value_gradient_ref.dtype)


def _scores(query: jax.Array, key_ref: Any, bias_ref: Any, rows: Any, columns: Any) -> jax.Array:
    scores = _product(query, key_ref[columns, :].T)  # [Q, K]
    return scores + (bias_ref[columns][None, :] if len(bias_ref.shape) == 1 else bias_ref[rows, columns])


def _kept(keys_ref: Any, head: Any, rows: Any, columns: Any, length: int, rate: float) -> jax.Array:
    """Return which probabilities of a block the dropout keeps, bool [Q, K]."""
    words = keys_ref[0] + head.astype(jnp.uint32) * stride((1, length, length), 0)
    for axis, part in enumerate((rows, columns)):
        sizes = (part.size, 1) if axis == 0 else (1, part.size)
        positions = jax.lax.broadcasted_iota(jnp.uint32, sizes, axis) + jnp.asarray(part.start).astype(jnp.uint32)
        words = words + positions * stride((length, length), axis)
    return is_kept(words, keys_ref[1], rate)


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.dot(left, right, preferred_element_type=jnp.float32)
