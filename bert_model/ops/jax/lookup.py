"""Look-ups of rows under JAX whose gradient is a fast and deterministic sum on GPUs.

The gradient of a look-up adds rows into a table. XLA does that with atomic operations in any order. Where only
deterministic operations are allowed, it sorts all numbers of all rows and computes prefix sums of them.
"""

import functools

import jax
import jax.numpy as jnp

# Rows of a block of `sum_by_row`.
_BLOCK = 128


@jax.custom_vjp
def take_rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the rows of a table, NaN for ids beyond it.

    Args:
        table: float32 [V, H].
        ids: int [...].

    Returns:
        float32 [..., H].
    """
    return jnp.take(table, ids, axis=0)


def _take_rows_forward(table: jax.Array, ids: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return take_rows(table, ids), (table, ids)


def _take_rows_backward(saved: tuple[jax.Array, jax.Array], upstream: jax.Array) -> tuple[jax.Array, None]:
    table, ids = saved
    rows = table.shape[0]
    sums = {"cuda": functools.partial(sum_by_row, rows=rows), "default": functools.partial(_added, rows=rows)}
    values = upstream.reshape(ids.size, -1)  # [N, H]
    return jax.lax.platform_dependent(values, ids.reshape(-1), **sums), None


take_rows.defvjp(_take_rows_forward, _take_rows_backward)


def _added(values: jax.Array, ids: jax.Array, rows: int) -> jax.Array:
    return jnp.zeros((rows, values.shape[1]), values.dtype).at[ids].add(values)  # [V, H]


def sum_by_row(values: jax.Array, ids: jax.Array, rows: int) -> jax.Array:
    """Return the sum of the values with each id, equal at every call.

    The values are sorted by id and cut into blocks. Within a block, a product with a matrix of zeros and ones adds the
    values of each run of equal ids; a scan over the blocks adds runs that several blocks share.

    Args:
        values: float32 [N, H].
        ids: int [N], in [0, rows).
        rows: number of rows of the result, V.

    Returns:
        float32 [V, H].
    """
    count, size = values.shape
    padding = -count % _BLOCK
    ids = jnp.concatenate([ids.astype(jnp.int32), jnp.full(padding, rows, jnp.int32)])  # [M], M a multiple of the block
    order = jnp.argsort(ids)  # Stable: padding, with the highest id, remains at the end.
    ids = ids[order]
    is_first = jnp.concatenate([jnp.ones(1, bool), ids[1:] != ids[:-1]])  # [M], of its run
    is_last = jnp.concatenate([is_first[1:], jnp.ones(1, bool)])
    run = jnp.cumsum(is_first).reshape(-1, _BLOCK)  # [M / 128, 128], number of a run of equal ids
    run = run - run[:, :1]  # counted from the first run of the block

    sorted_values = values[jnp.minimum(order, count - 1)] * (order < count)[:, None]  # [M, H], 0 in the padding
    sorted_values = sorted_values.reshape(-1, _BLOCK, size)  # [M / 128, 128, H]
    is_in_run = (run[:, None, :] == jnp.arange(_BLOCK)[:, None]).astype(values.dtype)  # [M / 128, 128 runs, 128]
    sums = jnp.matmul(is_in_run, sorted_values, precision=jax.lax.Precision.HIGHEST)  # [M / 128, 128 runs, H]

    # The last run of a block continues in the next one if that begins with the same id.
    last_run = jnp.take_along_axis(sums, run[:, -1:, None], axis=1)[:, 0]  # [M / 128, H]
    continues = ~is_first.reshape(-1, _BLOCK)[:, 0]  # [M / 128]
    is_new = ~continues | (run[:, -1] > 0)
    _, total = jax.lax.associative_scan(_add_unless_new, (is_new, last_run))  # [M / 128, H], up to the end of the block
    before = jnp.concatenate([jnp.zeros((1, size), values.dtype), total[:-1]]) * continues[:, None]  # [M / 128, H]

    # The position where the run with each id ends, -1 for ids that do not occur; other positions have targets beyond
    # the rows, and are dropped.
    positions = jnp.arange(ids.size, dtype=jnp.int32)
    targets = jnp.where(is_last, ids, rows + 1 + positions)
    end = jnp.full(rows, -1, jnp.int32).at[targets].set(positions, mode="drop", unique_indices=True)  # [V]
    run_of_end = run.reshape(-1)[end]
    result = sums.reshape(-1, size)[end // _BLOCK * _BLOCK + run_of_end]  # [V, H]
    result = result + before[end // _BLOCK] * (run_of_end == 0)[:, None]
    return jnp.where((end >= 0)[:, None], result, 0.0)


def _add_unless_new(earlier: tuple[jax.Array, jax.Array], later: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
    (was_new, before), (is_new, value) = earlier, later
    return was_new | is_new, jnp.where(is_new[:, None], value, before + value)


@jax.custom_vjp
def take_positions(values: jax.Array, positions: jax.Array) -> jax.Array:
    """Return the vectors of each example at its positions.

    Args:
        values: float32 [B, S, H].
        positions: int [B, Q], indices into S.

    Returns:
        float32 [B, Q, H].
    """
    return _positions_taken(values, positions)


def _positions_taken(values: jax.Array, positions: jax.Array) -> jax.Array:
    batch, length, size = values.shape
    first = jnp.arange(batch, dtype=jnp.int32)[:, None] * length  # [B, 1]
    return jnp.take(values.reshape(batch * length, size), positions.astype(jnp.int32) + first, axis=0)  # [B, Q, H]


def _take_positions_forward(values: jax.Array, positions: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _positions_taken(values, positions), (values, positions)


def _take_positions_backward(saved: tuple[jax.Array, jax.Array], upstream: jax.Array) -> tuple[jax.Array, None]:
    values, positions = saved

    def added(upstream: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda values: _positions_taken(values, positions), values)(upstream)[0]

    return jax.lax.platform_dependent(
        upstream, cuda=lambda upstream: sum_by_position(upstream, positions, values.shape[1]), default=added
    ), None


take_positions.defvjp(_take_positions_forward, _take_positions_backward)


def sum_by_position(values: jax.Array, positions: jax.Array, length: int) -> jax.Array:
    """Return the sum of the values of each example at each position, by a product with a matrix of zeros and ones.

    Args:
        values: float32 [B, Q, H].
        positions: int [B, Q], in [0, length).
        length: number of positions, S.

    Returns:
        float32 [B, S, H].
    """
    is_at = (positions[:, None, :] == jnp.arange(length)[:, None]).astype(values.dtype)  # [B, S, Q]
    return jnp.matmul(is_at, values, precision=jax.lax.Precision.HIGHEST)  # [B, S, H]
