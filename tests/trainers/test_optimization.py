import numpy as np
import pytest
import tensorflow as tf

from trainers.optimization import AdamWeightDecay, is_decayed, learning_rate_at


def test_which_variables_decay():
    decayed = ["bert/embeddings/word_embeddings", "bert/encoder/layer_0/output/dense/kernel", "output_weights"]
    kept = ["bert/embeddings/LayerNorm/gamma", "a/layer_norm/gamma", "cls/predictions/output_bias", "x/dense/bias"]
    assert [is_decayed(name) for name in decayed] == [True] * 3
    assert [is_decayed(name) for name in kept] == [False] * 4


def test_learning_rate_has_the_released_shape():
    def rates(steps, warmup):
        return [float(learning_rate_at(tf.constant(step, tf.int64), 1e-3, 100, warmup)) for step in steps]

    assert rates([0, 1, 5, 9], 10) == pytest.approx([0, 1e-4, 5e-4, 9e-4])
    # The jump: warm-up ends near the peak, the decay has been running since step 0.
    assert rates([10, 11, 50, 99, 100, 200], 10) == pytest.approx([9e-4, 8.9e-4, 5e-4, 1e-5, 0, 0], abs=1e-9)
    assert rates([0, 1, 100], 0) == pytest.approx([1e-3, 9.9e-4, 0], abs=1e-9)


def transcription(variables, gradients_of_step, rates):
    """The published formulas, variable by variable, in float64."""
    w = {name: value.astype(np.float64) for name, value in variables.items()}
    m = {name: np.zeros_like(value) for name, value in w.items()}
    v = {name: np.zeros_like(value) for name, value in w.items()}
    norms = []
    for gradients, rate in zip(gradients_of_step, rates, strict=True):
        norm = np.sqrt(sum((gradient.astype(np.float64) ** 2).sum() for gradient in gradients.values()))
        norms.append(norm)
        for name, gradient in gradients.items():
            g = gradient * min(1.0, 1.0 / norm)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g * g
            update = m[name] / (np.sqrt(v[name]) + 1e-6)
            if not any(part in name for part in ("LayerNorm", "layer_norm", "bias")):
                update = update + 0.01 * w[name]
            w[name] = w[name] - rate * update
    return w, m, v, norms


def test_twenty_steps_agree_with_a_transcription():
    generator = np.random.default_rng(0)
    shapes = {"a/kernel": (4, 5), "a/bias": (5,), "a/LayerNorm/gamma": (5,), "embeddings": (7, 3)}
    initial = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    # Norms below and above 1, so that clipping acts on some steps alone.
    scales = np.where(np.arange(20) % 3 == 0, 0.01, 3.0)
    gradients = [
        {name: (scale * generator.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
        for scale in scales
    ]
    rates = np.linspace(1e-2, 1e-3, 20)

    variables = {name: tf.Variable(value) for name, value in initial.items()}
    optimizer = AdamWeightDecay(variables)
    norms = []
    for step, rate in zip(gradients, rates, strict=True):
        tensors = [tf.constant(gradient) for gradient in step.values()]
        # One gradient in sparse form, as a gather gives it.
        tensors[3] = tf.IndexedSlices(tensors[3], tf.range(7), tf.constant([7, 3]))
        norms.append(float(optimizer.apply(tensors, tf.constant(rate, tf.float32))))

    w, m, v, expected_norms = transcription(initial, gradients, rates)
    assert norms == pytest.approx(expected_norms, rel=1e-5)
    for name in shapes:
        np.testing.assert_allclose(variables[name].numpy(), w[name], rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(optimizer.slots[f"{name}/adam_m"].numpy(), m[name], rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(optimizer.slots[f"{name}/adam_v"].numpy(), v[name], rtol=1e-4, atol=1e-9)


def test_a_variable_without_a_gradient_stays_as_it_is():
    variables = {"a/kernel": tf.Variable([2.0, 3.0]), "unused/kernel": tf.Variable([4.0, 5.0])}
    optimizer = AdamWeightDecay(variables)
    norm = optimizer.apply([tf.constant([3.0, 4.0]), None], tf.constant(0.1))
    assert float(norm) == pytest.approx(5.0)
    assert variables["unused/kernel"].numpy().tolist() == [4.0, 5.0]
    assert optimizer.slots["unused/kernel/adam_m"].numpy().tolist() == [0.0, 0.0]
    assert variables["a/kernel"].numpy()[0] < 2.0
