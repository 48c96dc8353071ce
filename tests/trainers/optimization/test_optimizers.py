import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.trainers.optimization.optimizer_problem import DECAYED, SHAPES, gradients, initial_weights, rates
from trainers.optimization.optimizer_options import OPTIMIZERS, OptimizerOptions
from trainers.optimization.optimizers import Optimizer, clip_by_global_norm

# With a decay of 0.5 from layer to layer and two multipliers: of two layers the upper has 0.5, the lower 0.25, the
# embeddings 0.125; what is above them 1.
RATE_FACTORS = {
    "bert/embeddings/word_embeddings": 0.125,
    "bert/embeddings/LayerNorm/gamma": 0.125,
    "bert/encoder/layer_0/output/dense/kernel": 0.25,
    "bert/encoder/layer_0/output/dense/bias": 0.25 * 3.0,
    "bert/encoder/layer_1/output/dense/kernel": 0.5,
    "cls/predictions/output_bias": 2.0,
    "bert/pooler/dense/kernel": 1.0,
}
LAYERWISE = {"layerwise_lr_decay": 0.5, "lr_multipliers": (("dense/bias", 3.0), ("bias$", 2.0))}


def transcription(name, factors, weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, clip_norm=1.0):
    """The published algorithms in float64, as their papers and the released code write them down."""
    w = {variable: value.astype(np.float64) for variable, value in initial_weights().items()}
    m = {variable: np.zeros(shape) for variable, shape in SHAPES.items()}
    v = {variable: np.zeros(shape) for variable, shape in SHAPES.items()}
    norms = []
    for t, rate in enumerate(rates(), start=1):
        given = {variable: gradient.astype(np.float64) for variable, gradient in gradients(t - 1).items()}
        norms.append(np.sqrt(sum((gradient**2).sum() for gradient in given.values())))
        for variable, g in given.items():
            if clip_norm and norms[-1] > clip_norm:
                g = g * clip_norm / norms[-1]
            m[variable] = beta_1 * m[variable] + (1 - beta_1) * g
            v[variable] = beta_2 * v[variable] + (1 - beta_2) * g**2
            if name == "bert_adam":
                r = m[variable] / (np.sqrt(v[variable]) + epsilon)
            else:
                m_hat, v_hat = m[variable] / (1 - beta_1**t), v[variable] / (1 - beta_2**t)
                r = m_hat / (np.sqrt(v_hat) + epsilon)
            ratio = 1.0
            if variable in DECAYED:
                r = r + weight_decay * w[variable]
                if name == "lamb":
                    ratio = np.linalg.norm(w[variable]) / np.linalg.norm(r)
            w[variable] = w[variable] - rate * factors[variable] * ratio * r
    return w, m, v, norms


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("changes", [{}, LAYERWISE, {"weight_decay": 0.2, "clip_norm": 2.0, "epsilon": 1e-2}])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_agree_with_a_transcription(name, changes, compiled):
    options = OptimizerOptions(name=name, **changes)
    if changes is LAYERWISE:
        expected_w, expected_m, expected_v, expected_norms = transcription(name, RATE_FACTORS)
    else:
        expected_w, expected_m, expected_v, expected_norms = transcription(name, dict.fromkeys(SHAPES, 1.0), **changes)

    variables = {variable: tf.Variable(value) for variable, value in initial_weights().items()}
    optimizer = Optimizer(variables, options)

    @tf.function(jit_compile=compiled)
    def update(given, rate, step):
        clipped, norm = clip_by_global_norm([given.get(variable) for variable in variables], options.clip_norm)
        optimizer.apply(clipped, rate, step)
        return norm

    norms = []
    for step, rate in enumerate(rates()):
        given = {variable: tf.constant(gradient) for variable, gradient in gradients(step).items()}
        norms.append(float(update(given, tf.constant(rate, tf.float32), tf.constant(step, tf.int64))))
        if step == 0:
            # The rate of step 0 is 0, which leaves the weights and not the slots.
            assert all((variables[variable].numpy() == value).all() for variable, value in initial_weights().items())

    assert norms == pytest.approx(expected_norms, rel=1e-5)
    assert not np.allclose(
        expected_w["bert/embeddings/word_embeddings"], next(iter(initial_weights().values())), atol=1e-3
    )
    for variable in SHAPES:
        np.testing.assert_allclose(variables[variable].numpy(), expected_w[variable], rtol=1e-5, atol=1e-6)
        slots = [optimizer.slots[f"{variable}/{slot}"].numpy() for slot in ("adam_m", "adam_v")]
        np.testing.assert_allclose(slots[0], expected_m[variable], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(slots[1], expected_v[variable], rtol=2e-5, atol=1e-10)


def test_a_variable_without_a_gradient_stays_as_it_is():
    variables = {"a/kernel": tf.Variable([2.0, 3.0]), "unused/kernel": tf.Variable([4.0, 5.0])}
    optimizer = Optimizer(variables, OptimizerOptions())
    optimizer.apply([tf.constant([0.6, 0.8]), None], tf.constant(0.1), tf.constant(0))
    assert variables["unused/kernel"].numpy().tolist() == [4.0, 5.0]
    assert optimizer.slots["unused/kernel/adam_m"].numpy().tolist() == [0.0, 0.0]
    assert variables["a/kernel"].numpy()[0] < 2.0


def bits(optimizer):
    return [value.numpy().tobytes() for value in (*optimizer.variables.values(), *optimizer.slots.values())]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_changes_where_the_gradient_is_not_finite(name, compiled):
    # A zero of either sign and numbers near underflow, which arithmetic in place of a branch would change.
    variables = {"a/kernel": tf.Variable([[-0.0, 1.0], [1e-38, -3.0]]), "a/bias": tf.Variable([0.5])}
    optimizer = Optimizer(variables, OptimizerOptions(name=name))
    update = tf.function(
        lambda gradients, step, finite: optimizer.apply(gradients, tf.constant(0.1), step, finite),
        jit_compile=compiled,
    )
    good = [tf.constant([[0.1, -0.2], [0.3, -1e-30]]), tf.constant([0.4])]
    update(good, tf.constant(0), tf.constant(True))
    for slot in optimizer.slots.values():
        slot.scatter_nd_update([[0]] if slot.shape.rank == 1 else [[0, 0]], [-0.0])
    before = bits(optimizer)
    for bad in (np.nan, np.inf):
        update([tf.fill([2, 2], np.float32(bad)), good[1]], tf.constant(1), tf.constant(False))
        assert bits(optimizer) == before
    update(good, tf.constant(1), tf.constant(True))
    assert all(new != old for new, old in zip(bits(optimizer), before, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_runs_have_the_same_bits(name):
    def run():
        variables = {
            variable: tf.Variable(np.resize(value, (300, 400))) for variable, value in initial_weights().items()
        }
        optimizer = Optimizer(variables, OptimizerOptions(name=name))
        for step in range(3):
            given = gradients(step)
            large = [
                tf.constant(np.resize(given[variable], (300, 400))) if variable in given else None
                for variable in variables
            ]
            optimizer.apply(clip_by_global_norm(large, 1.0)[0], tf.constant(1e-3), tf.constant(step))
        return bits(optimizer)

    assert run() == run()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_that_pad_the_vocabulary_change_nothing(name):
    """They have no gradient; whatever lies in them, the real rows become the same."""
    word_embeddings = "bert/embeddings/word_embeddings"

    def run(rows):
        padding = ((0, rows - 5), (0, 0))
        initial = np.pad(initial_weights()[word_embeddings], padding, constant_values=7.0)
        variable = tf.Variable(initial)
        optimizer = Optimizer({word_embeddings: variable}, OptimizerOptions(name=name), vocab_size=5)
        for step in range(4):
            optimizer.apply(
                [tf.constant(np.pad(gradients(step)[word_embeddings], padding))], tf.constant(0.01), tf.constant(step)
            )
        return variable.numpy()[:5], optimizer.slots[f"{word_embeddings}/adam_v"].numpy()

    weights, _ = run(5)
    padded_weights, padded_v = run(8)
    np.testing.assert_allclose(padded_weights, weights, rtol=1e-6)
    assert not padded_v[5:].any()


def test_lamb_without_a_length_to_keep_takes_the_plain_update():
    zeros, ones = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    variables = {"zero/kernel": tf.Variable(zeros), "still/kernel": tf.Variable(ones)}
    optimizer = Optimizer(variables, OptimizerOptions(name="lamb", weight_decay=0.0))
    optimizer.apply([tf.constant(ones), tf.constant(zeros)], tf.constant(0.1), tf.constant(0))
    np.testing.assert_allclose(variables["zero/kernel"].numpy(), -0.1 * ones, rtol=1e-5)
    assert (variables["still/kernel"].numpy() == ones).all()


def test_clipping():
    gradients = [tf.constant([3.0, 0.0]), None, tf.constant([[4.0]])]
    clipped, norm = clip_by_global_norm(gradients, 1.0)
    assert float(norm) == pytest.approx(5.0)
    assert clipped[1] is None
    np.testing.assert_allclose(clipped[0].numpy(), [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped[2].numpy(), [[0.8]], rtol=1e-6)
    for longest in (5.1, None, 0.0):
        same, norm = clip_by_global_norm(gradients, longest)
        assert float(norm) == pytest.approx(5.0)
        np.testing.assert_allclose(same[2].numpy(), [[4.0]], rtol=1e-6)


@pytest.mark.parametrize("clip_norm", [1.0, None])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_norm_that_is_not_finite_shows(bad, clip_norm):
    _, norm = clip_by_global_norm([tf.constant([1.0, bad], tf.float32), None, tf.constant([2.0])], clip_norm)
    assert not np.isfinite(norm.numpy())


def test_on_several_devices_each_copy_is_updated_alike():
    """In a process of its own, as devices are made when TensorFlow starts."""
    script = ROOT / "tests" / "trainers" / "backends" / "optimizer_on_devices.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == list(OPTIMIZERS)
