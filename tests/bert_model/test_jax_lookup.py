import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from beambert.bert_model.ops.jax.lookup import sum_by_position, sum_by_row, take_positions, take_rows  # noqa: E402

SUM_BY_ROW = jax.jit(sum_by_row, static_argnums=2)


def added(values, ids, rows):
    """Return the sum of the values of each id in float64, adding one value at a time."""
    total = np.zeros((rows, values.shape[1]))
    for value, row in zip(values.astype(np.float64), ids, strict=True):
        total[row] += value
    return total


@pytest.mark.parametrize(
    ("count", "rows", "frequent"),
    [(1, 3, 0), (128, 5, 0), (129, 1, 0), (1000, 1, 1), (700, 40, 3), (640, 3000, 0), (900, 3000, 2)],
)
def test_sum_by_row(count, rows, frequent):
    """Check ids that occur never, once, in one block and in several blocks; the first ids have most of the values."""
    generator = np.random.default_rng(count)
    ids = generator.integers(0, rows, count)
    if frequent:
        ids = np.where(generator.random(count) < 0.8, generator.integers(0, frequent, count), ids)
    values = generator.normal(size=(count, 6)).astype(np.float32)
    np.testing.assert_allclose(SUM_BY_ROW(values, ids, rows), added(values, ids, rows), atol=3e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=300, max_size=300), st.randoms(use_true_random=False))
def test_sum_by_row_of_integers_does_not_depend_on_the_order(ids, random):
    values = np.arange(300, dtype=np.float32)[:, None]
    order = list(range(300))
    random.shuffle(order)
    ids = np.sort(ids)[order]
    np.testing.assert_array_equal(SUM_BY_ROW(values[order], ids, 10), added(values[order], ids, 10))


def test_sum_by_position():
    generator = np.random.default_rng(0)
    positions = generator.integers(0, 8, (3, 5))
    values = generator.normal(size=(3, 5, 4)).astype(np.float32)
    wanted = [added(values[example], positions[example], 8) for example in range(3)]
    np.testing.assert_allclose(sum_by_position(values, positions, 8), wanted, atol=1e-6)


def test_look_ups_and_their_gradients_on_a_cpu():
    generator = np.random.default_rng(0)
    table, ids = generator.normal(size=(7, 4)).astype(np.float32), np.array([[3, 0, 3], [6, 3, 6]])
    upstream = generator.normal(size=(2, 3, 4)).astype(np.float32)
    rows, vjp = jax.vjp(lambda table: take_rows(table, ids), table)
    np.testing.assert_array_equal(rows, table[ids])
    np.testing.assert_allclose(vjp(upstream)[0], added(upstream.reshape(6, 4), ids.reshape(6), 7), atol=1e-6)

    values, positions = generator.normal(size=(2, 5, 4)).astype(np.float32), np.array([[4, 0, 4], [1, 2, 1]])
    taken, vjp = jax.vjp(lambda values: take_positions(values, positions), values)
    np.testing.assert_array_equal(taken, np.take_along_axis(values, positions[..., None], 1))
    wanted = [added(upstream[example], positions[example], 5) for example in range(2)]
    np.testing.assert_allclose(vjp(upstream)[0], wanted, atol=1e-6)


def test_an_id_beyond_the_table_gives_nan():
    """Check for NaN, as from `jax.numpy.take`, so that training stops instead of learning from another row."""
    assert np.isnan(take_rows(jnp.ones((3, 2)), np.array([3]))).all()
