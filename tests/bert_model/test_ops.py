"""Test that each form of an operation has the outputs and gradients of the plain one."""

import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.ops import plain
from beambert.bert_model.ops import tensorflow as tensorflow_ops

jax = pytest.importorskip("jax")

from beambert.bert_model.ops import jax as jax_ops  # noqa: E402

GENERATOR = np.random.default_rng(0)


def random(*shape, scale=1.0):
    return (scale * GENERATOR.normal(size=shape)).astype(np.float32)


MASK = np.where(GENERATOR.random((2, 1, 3, 5)) < 0.7, 0.0, -10000.0).astype(np.float32)
# Arguments with a gradient, and the arguments that follow them.
CASES = {
    "attention": ((random(2, 3, 4, 8), random(2, 5, 4, 8), random(2, 5, 4, 8)), (MASK,)),
    "cross_entropy": ((random(3, 4, 11, scale=30),), (GENERATOR.integers(0, 11, (3, 4)),)),
    "dense": ((random(2, 3, 7), random(7, 5), random(5)), ()),
    "gelu": ((random(4, 60, scale=3),), ()),
    "layer_normalization": ((random(2, 3, 32) + 3, random(32), random(32)), (1e-12,)),
    "row_major": ((random(2, 3, 4),), ()),
    "take_positions": ((random(2, 5, 4),), (np.array([[4, 0, 4], [1, 2, 1]]),)),
    "take_rows": ((random(7, 4),), (np.array([[3, 0, 3], [6, 3, 6]]),)),
}


def tensorflow_results(function, arguments, others, upstream):
    arguments = [tf.constant(argument) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        outputs = function(*arguments, *others)
    gradients = tape.gradient(outputs, arguments, upstream)
    return [np.asarray(tf.convert_to_tensor(values)) for values in (outputs, *gradients)]


def jax_results(function, arguments, others, upstream):
    outputs, vjp = jax.vjp(jax.jit(lambda *arguments: function(*arguments, *others)), *arguments)
    return [np.asarray(values) for values in (outputs, *vjp(upstream))]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("module", "results_of"), [(tensorflow_ops, tensorflow_results), (jax_ops, jax_results)])
def test_a_form_has_the_outputs_and_gradients_of_the_plain_one(name, module, results_of):
    arguments, others = CASES[name]
    shape = np.shape(getattr(plain, name)(*arguments, *others))
    upstream = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    expected = tensorflow_results(getattr(plain, name), arguments, others, upstream)
    assert all(np.abs(values).max() > 0.01 for values in expected)
    results = results_of(getattr(module, name), arguments, others, upstream)
    for values, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=2e-5)


SEED, SEED_PER_EXAMPLE = np.array([5, -2], np.int32), np.array([[5, -2], [6, -2]], np.int32)


@pytest.mark.parametrize(
    ("module", "seed"),
    [(plain, SEED), (plain, SEED_PER_EXAMPLE), (tensorflow_ops, SEED), (jax_ops, SEED), (jax_ops, SEED_PER_EXAMPLE)],
)
def test_dropout_scales_what_it_keeps_and_is_a_function_of_its_seed(module, seed):
    results_of = jax_results if module is jax_ops else tensorflow_results
    inputs, upstream = random(2, 40, 500) + 9, random(2, 40, 500) + 9
    outputs, gradient = results_of(module.dropout, (inputs,), (0.1, seed), upstream)
    kept = outputs != 0
    # Five standard deviations of the frequency of 40,000 draws.
    assert kept.mean() == pytest.approx(0.9, abs=0.0075)
    assert abs((kept[0] & kept[1]).mean() - 0.81) < 0.015
    np.testing.assert_allclose(outputs, np.where(kept, inputs / 0.9, 0), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.where(kept, upstream / 0.9, 0), rtol=1e-6)
    np.testing.assert_array_equal(results_of(module.dropout, (inputs,), (0.1, seed), upstream)[0], outputs)
    other = results_of(module.dropout, (inputs,), (0.1, seed + 1), upstream)[0]
    assert ((other != 0) == kept).mean() == pytest.approx(0.82, abs=0.015)


def test_every_operation_has_all_forms():
    assert set(tensorflow_ops.__all__) == set(jax_ops.__all__) == {*CASES, "dropout"}
