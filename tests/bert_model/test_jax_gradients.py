import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from beambert.bert_model.ops.jax.gradients import add_bias, cross_entropy, layer_normalization, softmax  # noqa: E402


def random(*shapes, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.normal(0, 1, shape).astype(np.float32) for shape in shapes]


def plain_softmax(scores, bias):
    return jax.nn.softmax(scores.astype(jnp.float32) + bias, axis=-1).astype(scores.dtype)


def plain_normalization(inputs, gamma, beta):
    centered = inputs - inputs.mean(-1, keepdims=True)
    return centered / jnp.sqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-12) * gamma + beta


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 2e-2)])
def test_softmax(dtype, tolerance):
    """Compare with automatic differentiation of JAX's softmax in float32, for the same rounded scores."""
    scores, upstream = random((2, 3, 5, 9), (2, 3, 5, 9))
    bias = np.where(np.arange(9) < 7, 0.0, -10000.0).astype(np.float32)[None, None, None]
    scores = jnp.asarray(4 * scores, dtype)
    expected, expected_vjp = jax.vjp(lambda values: plain_softmax(values.astype(jnp.float32), bias), scores)
    actual, actual_vjp = jax.vjp(lambda values: softmax(values, bias), scores)
    assert actual.dtype == scores.dtype
    np.testing.assert_allclose(actual.astype(jnp.float32), expected, atol=tolerance / 4)
    (gradient,) = actual_vjp(jnp.asarray(upstream, dtype))
    (expected_gradient,) = expected_vjp(jnp.asarray(upstream, dtype).astype(jnp.float32))
    assert gradient.dtype == scores.dtype
    np.testing.assert_allclose(gradient.astype(jnp.float32), expected_gradient.astype(jnp.float32), atol=tolerance)


def test_softmax_of_scores_that_overflow_float16():
    np.testing.assert_allclose(softmax(jnp.array([[1e5, 1e5, -1e5]]), jnp.zeros(())), [[0.5, 0.5, 0]])


@pytest.mark.parametrize("mean", [0.0, 3.0, -20.0, 300.0])
def test_layer_normalization(mean):
    """Compare with automatic differentiation of two passes in float64; also where the mean is large."""
    inputs, gamma, beta, upstream = random((4, 6, 32), (32,), (32,), (4, 6, 32))
    inputs += np.float32(mean)
    outputs, vjp = jax.vjp(lambda *values: layer_normalization(*values, 1e-12), inputs, gamma, beta)
    actual = [outputs, *vjp(upstream)]
    with jax.enable_x64(True):
        wide = [jnp.asarray(values, jnp.float64) for values in (inputs, gamma, beta)]
        exact, exact_vjp = jax.vjp(plain_normalization, *wide)
        expected = [exact, *exact_vjp(jnp.asarray(upstream, jnp.float64))]
    assert all(values.dtype == np.float32 for values in actual)
    for values, wanted in zip(actual, expected, strict=True):
        # A float32 of the size of the mean has an error of 6e-8 of it.
        np.testing.assert_allclose(values, wanted, atol=2e-5 + 5e-7 * abs(mean))


@pytest.mark.parametrize("value", [3.3, 12.7, -1e6, 0.0])
def test_layer_normalization_of_a_constant_row_is_beta(value):
    size = 768
    inputs, gamma, beta = jnp.full((2, size), value), jnp.ones(size), jnp.arange(float(size))
    np.testing.assert_array_equal(layer_normalization(inputs, gamma, beta, 1e-12), np.stack([beta] * 2))
    assert np.isfinite(jax.grad(lambda values: layer_normalization(values, gamma, beta, 1e-12).sum())(inputs)).all()


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e5])
def test_cross_entropy(scale):
    """Compare with automatic differentiation of log softmax in float64."""
    logits, upstream = random((3, 4, 11), (3, 4))
    logits, labels = scale * logits, np.arange(12).reshape(3, 4) % 11
    losses, vjp = jax.vjp(lambda values: cross_entropy(values, labels), logits)
    with jax.enable_x64(True):

        def plain(values):
            return -jnp.take_along_axis(jax.nn.log_softmax(values), labels[..., None], -1)[..., 0]

        wanted, wanted_vjp = jax.vjp(plain, jnp.asarray(logits, jnp.float64))
        wanted_gradient = wanted_vjp(jnp.asarray(upstream, jnp.float64))[0]
    assert losses.dtype == np.float32
    np.testing.assert_allclose(losses, wanted, rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(vjp(upstream)[0], wanted_gradient, atol=1e-6)


def test_the_gradient_of_a_bias_is_summed_in_float32():
    """Check a sum for which automatic differentiation in bfloat16, which has 8 bits, has an error of 3 %.

    In bfloat16, a sum of ones does not exceed 256.
    """
    (upstream,) = random((5000, 8))
    upstream = jnp.asarray(upstream + 0.1, jnp.bfloat16)
    inputs, bias = jnp.zeros((5000, 8), jnp.bfloat16), jnp.ones(8, jnp.bfloat16)
    outputs, vjp = jax.vjp(add_bias, inputs, bias)
    np.testing.assert_array_equal(outputs, jnp.ones_like(inputs))
    of_inputs, of_bias = vjp(upstream)
    np.testing.assert_array_equal(of_inputs, upstream)
    assert of_bias.dtype == bias.dtype
    np.testing.assert_allclose(of_bias.astype(np.float32), np.asarray(upstream, np.float64).sum(0), rtol=2**-8)
