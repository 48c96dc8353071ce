"""Test the optimizers against a transcription, recorded results of the released code, and Keras."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from beambert.trainers.options import OptimizerOptions
from tests.conftest import ROOT
from tests.trainers.optimization import optimizer_steps
from tests.trainers.optimization.optimizer_problem import (
    DECAYED,
    SHAPES,
    STEPS,
    gradients,
    initial_weights,
    rates,
)
from tests.trainers.optimization.optimizer_steps import (
    CHANGES,
    LR_SCHEDULES,
    OPTIMIZERS,
    clipped,
    compiled,
    make_step,
    new_optimizer,
    rates_of,
    state_of,
    updates_of,
    weights_after,
)

# The optimizers with two moment estimates for every variable.
ADAMS = ("bert_adam", "adamw", "lamb")

# Rate factors of "layerwise" in CHANGES. Of two layers, the upper one has 0.5 and the lower one 0.25. The embeddings
# have 0.125, and the variables above the layers 1.
RATE_FACTORS = {
    "bert/embeddings/word_embeddings": 0.125,
    "bert/embeddings/LayerNorm/gamma": 0.125,
    "bert/encoder/layer_0/output/dense/kernel": 0.25,
    "bert/encoder/layer_0/output/dense/bias": 0.25 * 3.0,
    "bert/encoder/layer_1/output/dense/kernel": 0.5,
    "cls/predictions/output_bias": 2.0,
    "bert/pooler/dense/kernel": 1.0,
}


def transcription(name, factors, weight_decay=0.01, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-6, clip_norm=1.0):
    """Return weights, slots by name and norms in float64, transcribed from the papers and the released code."""
    w = {variable: value.astype(np.float64) for variable, value in initial_weights().items()}
    slots = {
        f"{variable}/{slot}": np.zeros(shape) for variable, shape in SHAPES.items() for slot in slots_of(name, variable)
    }
    norms = []
    for t, rate in enumerate(rates(), start=1):
        given = {variable: gradient.astype(np.float64) for variable, gradient in gradients(t - 1).items()}
        norms.append(np.sqrt(sum((gradient**2).sum() for gradient in given.values())))
        for variable, g in given.items():
            if clip_norm and norms[-1] > clip_norm:
                g = g * clip_norm / norms[-1]
            if f"{variable}/momentum" in slots:
                momentum = 0.95 * slots[f"{variable}/momentum"] + g
                r = 0.2 * np.sqrt(max(g.shape)) * newton_schulz(momentum)
                slots[f"{variable}/momentum"] = momentum
            else:
                m = adam_beta1 * slots[f"{variable}/adam_m"] + (1 - adam_beta1) * g
                v = adam_beta2 * slots[f"{variable}/adam_v"] + (1 - adam_beta2) * g**2
                slots |= {f"{variable}/adam_m": m, f"{variable}/adam_v": v}
                if name == "bert_adam":
                    r = m / (np.sqrt(v) + adam_epsilon)
                else:
                    r = m / (1 - adam_beta1**t) / (np.sqrt(v / (1 - adam_beta2**t)) + adam_epsilon)
            ratio = 1.0
            if variable in DECAYED:
                r = r + weight_decay * w[variable]
                if name == "lamb":
                    ratio = np.linalg.norm(w[variable]) / np.linalg.norm(r)
            w[variable] = w[variable] - rate * factors[variable] * ratio * r
    return w, slots, norms


def slots_of(name, variable):
    is_adam = name in ADAMS or (name == "muon" and not re.fullmatch(r"bert/encoder/layer_./.*kernel", variable))
    return ("adam_m", "adam_v") if is_adam else ("momentum",)


def newton_schulz(matrix):
    """Return the result of five steps by the singular values, on each of which a step is a polynomial."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left * values @ right


@pytest.fixture(scope="module")
def jax_results(tmp_path_factory):
    """The arrays of `compiled_results` from a process with JAX."""
    path = tmp_path_factory.mktemp("jax") / "steps.npz"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, optimizer_steps.__file__, path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(path) as stored:
        return dict(stored)


@pytest.fixture
def steps_made(request):
    """A function from a backend and the arguments of `weights_after` to its result; JAX has only compiled results."""

    def made(backend, name, changes, is_compiled):
        if backend == "tensorflow":
            return weights_after(name, changes, is_compiled)
        results = request.getfixturevalue("jax_results")
        return {key.removeprefix(f"{name}/"): value for key, value in results.items() if key.startswith(f"{name}/")}

    return made


@pytest.mark.parametrize(
    ("backend", "name", "changes", "is_compiled"),
    [
        *(("tensorflow", name, changes, False) for name in OPTIMIZERS for changes in CHANGES),
        *((backend, name, "released", True) for backend in ("tensorflow", "jax") for name in OPTIMIZERS),
    ],
)
def test_twenty_steps_agree_with_a_transcription(backend, name, changes, is_compiled, steps_made):
    if changes == "layerwise":
        expected_w, expected_slots, expected_norms = transcription(name, RATE_FACTORS)
    else:
        factors = dict.fromkeys(SHAPES, 1.0)
        expected_w, expected_slots, expected_norms = transcription(name, factors, **CHANGES[changes])
    results = steps_made(backend, name, changes, is_compiled)
    # The rate of step 0 is 0, so the step changes the slots but not the weights.
    assert all((results[f"1:{variable}"] == value).all() for variable, value in initial_weights().items())
    assert results["norms"] == pytest.approx(expected_norms, rel=1e-5)
    assert not np.allclose(
        expected_w["bert/embeddings/word_embeddings"], next(iter(initial_weights().values())), atol=1e-3
    )
    for variable in SHAPES:
        last = f"{STEPS}:{variable}"
        np.testing.assert_allclose(results[last], expected_w[variable], rtol=1e-5, atol=1e-6)
    names = {key.removeprefix(f"{STEPS}:") for key in results if key.startswith(f"{STEPS}:")}
    assert names == {*SHAPES, *expected_slots}
    for slot, expected in expected_slots.items():
        # 1 - beta_2 is computed in float64; in float32, its relative error is -1.3e-5.
        tolerances = {"rtol": 2e-6, "atol": 1e-10} if slot.endswith("adam_v") else {"rtol": 1e-5, "atol": 1e-6}
        np.testing.assert_allclose(results[f"{STEPS}:{slot}"], expected, **tolerances)


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
@pytest.mark.parametrize("name", ADAMS)
def test_weights_are_those_of_the_recorded_run(name, backend, steps_made):
    """Compare with recorded weights; for bert_adam, the released code also computed the learning rates.

    The tolerance is that of its float32.
    """
    recorded = json.loads((ROOT / "tests/fixtures/optimizers.json").read_text(encoding="utf-8"))[name]
    results = steps_made(backend, name, "released", True)
    compared = 0
    for step in range(STEPS):
        for variable, expected in recorded.get(str(step + 1), {}).items():
            np.testing.assert_allclose(results[f"{step + 1}:{variable}"].ravel(), expected, rtol=1e-5, atol=1e-6)
            compared += 1
    assert compared == 5 * len(SHAPES) - (0 if name == "bert_adam" else 5)


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_jax_computes_the_learning_rates_of_tensorflow(name, jax_results):
    assert jax_results[f"rates/{name}"] == pytest.approx(rates_of(name), rel=1e-5, abs=1e-9)


def test_two_runs_have_the_same_bits():
    # LAMB has the norms of the variables, in addition to the norm of all gradients.
    names = ("bert/embeddings/word_embeddings", "bert/encoder/layer_0/output/dense/kernel")

    def run():
        weights = {variable: np.resize(initial_weights()[variable], (300, 400)) for variable in names}
        optimizer = new_optimizer(weights, OptimizerOptions(optimizer="lamb"))
        updates = compiled(updates_of(optimizer.update))
        for step in range(3):
            large = [tf.constant(np.resize(gradients(step)[variable], (300, 400))) for variable in names]
            make_step(optimizer, dict(zip(names, clipped(large, 1.0)[0], strict=True)), 1e-3, step, updates)
        return [value.numpy().tobytes() for value in (*optimizer.variables.values(), *optimizer.slots.values())]

    assert run() == run()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_that_pad_the_vocabulary_change_nothing(name):
    """Check that padding rows, which have no gradient, do not influence the real rows, regardless of their values."""
    word_embeddings = "bert/embeddings/word_embeddings"

    def run(rows):
        padding = ((0, rows - 5), (0, 0))
        initial = np.pad(initial_weights()[word_embeddings], padding, constant_values=7.0)
        optimizer = new_optimizer({word_embeddings: initial}, OptimizerOptions(optimizer=name), vocab_size=5)
        for step in range(4):
            gradient = np.pad(gradients(step)[word_embeddings], padding)
            make_step(optimizer, {word_embeddings: gradient}, 0.01, step)
        slots = [slot.numpy() for slot in optimizer.slots_of(word_embeddings)]
        return optimizer.variables[word_embeddings].numpy()[:5], slots

    weights, _ = run(5)
    padded_weights, padded_slots = run(8)
    np.testing.assert_allclose(padded_weights, weights, rtol=1e-6)
    assert not any(slot[5:].any() for slot in padded_slots)


def test_lamb_has_trust_ratio_1_where_a_norm_is_0():
    zeros, ones = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    weights = {"zero/kernel": zeros, "still/kernel": ones}
    optimizer = new_optimizer(weights, OptimizerOptions(optimizer="lamb", weight_decay=0.0))
    make_step(optimizer, {"zero/kernel": ones, "still/kernel": zeros}, 0.1, 0)
    np.testing.assert_allclose(optimizer.variables["zero/kernel"].numpy(), -0.1 * ones, rtol=1e-5)
    assert (optimizer.variables["still/kernel"].numpy() == ones).all()


def test_lamb_with_a_given_norm():
    """Check that a device with a part of a variable uses the norm of the whole, here of two equal halves."""
    whole = {"a/kernel": np.array([[3.0, 3.0], [4.0, 4.0]], np.float32)}
    gradient = np.array([[0.1, 0.1], [-0.3, -0.3]], np.float32)
    expected = new_optimizer(whole, OptimizerOptions(optimizer="lamb"))
    make_step(expected, {"a/kernel": gradient}, 0.1, 0)
    half = new_optimizer({"a/kernel": whole["a/kernel"][:, :1]}, OptimizerOptions(optimizer="lamb"))

    class Half:
        def norm(self, values):
            return tf.sqrt(2 * tf.reduce_sum(values**2))

    def updated(*arguments):
        return half.update(*arguments, part=Half())

    make_step(half, {"a/kernel": gradient[:, :1]}, 0.1, 0, updates_of(updated))
    np.testing.assert_allclose(half.variables["a/kernel"], expected.variables["a/kernel"].numpy()[:, :1], rtol=1e-6)


def test_muon_makes_the_singular_values_of_a_matrix_equal():
    name = "bert/encoder/layer_0/output/dense/kernel"
    gradient = np.random.default_rng(0).normal(size=(12, 20)).astype(np.float32)
    optimizer = new_optimizer(
        {name: np.zeros((12, 20), np.float32)}, OptimizerOptions(optimizer="muon", weight_decay=0.0)
    )
    make_step(optimizer, {name: gradient}, 1.0, 0)
    values = np.linalg.svd(optimizer.variables[name].numpy(), compute_uv=False) / (0.2 * 20**0.5)
    assert 0.6 < values.min() < values.max() < 1.3


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_variables_that_share_a_compiled_update_are_updated_alike(name):
    names = {
        "bert/embeddings/word_embeddings": (8, 3),
        "bert/encoder/layer_0/output/dense/kernel": (8, 3),
        "bert/encoder/layer_0/intermediate/dense/kernel": (8, 3),
        "bert/encoder/layer_1/output/dense/kernel": (8, 3),
        "bert/encoder/layer_0/output/dense/bias": (8,),
        "bert/encoder/layer_0/output/dense/scale": (8,),
        "bert/encoder/layer_0/output/LayerNorm/gamma": (8,),
        "bert/encoder/layer_1/output/LayerNorm/gamma": (8,),
        "cls/predictions/output_bias": (8,),
        "cls/predictions/transform/dense/kernel": (8, 3),
        "cls/predictions/transform/dense/bias": (8,),
        "output_weights": (3, 3),
    }
    generator = np.random.default_rng(0)
    weights = {variable: generator.normal(size=shape).astype(np.float32) for variable, shape in names.items()}
    options = OptimizerOptions(optimizer=name, weight_decay=0.1, layerwise_lr_decay=0.5)
    optimizer = new_optimizer(weights, options, vocab_size=5)
    shared = {variable: optimizer.first_alike(variable) for variable in names}
    assert shared["bert/encoder/layer_0/intermediate/dense/kernel"] == "bert/encoder/layer_0/output/dense/kernel"
    assert shared["bert/encoder/layer_0/output/LayerNorm/gamma"] == "bert/encoder/layer_0/output/dense/bias"
    for variable, first in shared.items():
        count = 1 + len(optimizer.slots_of(variable))
        values = generator.normal(size=(count, *names[variable])).astype(np.float32)
        state = state_of(*map(tf.constant, np.abs(values)))
        gradient = tf.constant(weights[variable])
        expected = optimizer.update(variable, state, gradient, tf.constant(0.1), tf.constant(3))
        shared_state = optimizer.update(first, state, gradient, tf.constant(0.1), tf.constant(3))
        for value, one in zip(tf.nest.flatten(shared_state), tf.nest.flatten(expected), strict=True):
            np.testing.assert_array_equal(value, one, err_msg=variable)


def test_clipping():
    gradients = [tf.constant([3.0, 0.0]), tf.constant([[4.0]])]
    scaled, norm = clipped(gradients, 1.0)
    assert float(norm) == pytest.approx(5.0)
    np.testing.assert_allclose(scaled[0].numpy(), [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(scaled[1].numpy(), [[0.8]], rtol=1e-6)
    same, _ = clipped(gradients, 5.1)
    np.testing.assert_allclose(same[1].numpy(), [[4.0]], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_norm_that_is_not_finite_makes_all_gradients_nan(bad):
    scaled, norm = clipped([tf.constant([1.0, bad], tf.float32), tf.constant([2.0])], 1.0)
    assert not np.isfinite(norm.numpy())
    assert all(np.isnan(gradient).all() for gradient in scaled)
