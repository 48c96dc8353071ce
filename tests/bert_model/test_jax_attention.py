"""Test the attention kernel, interpreted on the CPU, against float32 attention with the same dropout masks."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from beambert.bert_model.ops.jax.dropout import keep_mask  # noqa: E402
from beambert.bert_model.ops.jax.flash_attention import attention, is_supported  # noqa: E402
from tests.conftest import with_slow  # noqa: E402


def plain(query, key, value, bias, seed, rate):
    query, key, value = (part.astype(jnp.float32).transpose(0, 2, 1, 3) for part in (query, key, value))
    probabilities = jax.nn.softmax(query @ key.transpose(0, 1, 3, 2) + bias, axis=-1)
    if rate:
        probabilities = jnp.where(keep_mask(probabilities.shape, rate, seed), probabilities / (1 - rate), 0)
    return (probabilities @ value).transpose(0, 2, 1, 3)


@pytest.mark.parametrize(
    ("shape", "rate", "bias_rows"),
    with_slow(
        [
            ((2, 64, 2, 32), 0.0, 1),
            ((2, 64, 3, 64), 0.1, 1),
            ((2, 128, 2, 64), 0.1, 128),
            ((1, 192, 2, 32), 0.5, 1),
            ((1, 256, 1, 64), 0.1, 256),
        ],
        [((2, 64, 2, 32), 0.0, 1), ((1, 256, 1, 64), 0.1, 256)],
    ),
)
def test_outputs_and_gradients(shape, rate, bias_rows):
    """Check to a relative error of 0.4 %.

    Rounding to bfloat16 changes the results by 0.2 %; one wrong dropout mask changes them by at least 2 %.
    """
    batch, length, *_ = shape
    generator = np.random.default_rng(length)
    query, key, value, upstream = (jnp.asarray(generator.normal(size=shape), jnp.bfloat16) for _ in range(4))
    query = query / 8
    visible = generator.random((batch, 1, bias_rows, length)) < 0.8
    bias = np.where(visible, 0, -10000.0).astype(np.float32)
    seed = jnp.asarray(generator.integers(-(2**31), 2**31, (batch, 2)), jnp.int32)

    fused = jax.jit(lambda *parts: attention(*parts, bias, seed, rate, interpret=True))
    outputs, vjp = jax.vjp(fused, query, key, value)
    wide = [part.astype(jnp.float32) for part in (query, key, value)]
    wanted, wanted_vjp = jax.vjp(lambda *parts: plain(*parts, bias, seed, rate), *wide)
    for actual, expected in zip(
        [outputs, *vjp(upstream)], [wanted, *wanted_vjp(upstream.astype(jnp.float32))], strict=True
    ):
        assert actual.dtype == jnp.bfloat16
        error = jnp.linalg.norm(actual.astype(jnp.float32) - expected) / jnp.linalg.norm(expected)
        assert error < 4e-3


def test_without_a_seed_nothing_is_dropped():
    query, key, value = (
        jnp.asarray(np.random.default_rng(0).normal(size=(1, 64, 1, 32)), jnp.bfloat16) for _ in range(3)
    )
    bias = jnp.zeros((1, 1, 1, 64))
    outputs = attention(query, key, value, bias, None, 0.5, interpret=True)
    np.testing.assert_array_equal(outputs, attention(query, key, value, bias, interpret=True))


def test_what_is_supported():
    query = jnp.zeros((2, 128, 4, 64), jnp.bfloat16)
    assert is_supported(query, query, None)
    assert is_supported(query, query, jnp.zeros((2, 2), jnp.int32))
    assert not is_supported(query, query, jnp.zeros(2, jnp.int32))  # one seed for all examples
    assert not is_supported(query[:, :21], query, None)  # the last layer of pretraining
    assert not is_supported(query[:, :96], query[:, :96], None)
    assert not is_supported(query.astype(jnp.float32), query.astype(jnp.float32), None)
    assert not is_supported(query[..., :24], query[..., :24], None)
