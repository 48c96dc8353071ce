"""Our optimizers beside other people's: recorded by tests/parity/record_optimizers.py, and Keras's."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.trainers.optimization.optimizer_problem import (
    PEAK_RATE,
    STEPS,
    UNUSED,
    WARMUP_STEPS,
    gradients,
    initial_weights,
    rates,
)
from trainers.optimization.optimizer_options import OPTIMIZERS, OptimizerOptions
from trainers.optimization.optimizers import Optimizer, clip_by_global_norm, learning_rate_at


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_the_recorded_run(name):
    """The released code's own learning rates too, for bert_adam; the tolerance is that of its float32."""
    recorded = json.loads((ROOT / "tests/fixtures/optimizers.json").read_text(encoding="utf-8"))[name]
    variables = {variable: tf.Variable(value) for variable, value in initial_weights().items()}
    optimizer = Optimizer(variables, OptimizerOptions(name=name))
    compared = 0
    for step in range(STEPS):
        given = gradients(step)
        clipped, _ = clip_by_global_norm([given.get(variable) for variable in variables], 1.0)
        rate = learning_rate_at(tf.constant(step), PEAK_RATE, STEPS, WARMUP_STEPS)
        optimizer.apply(clipped, rate, tf.constant(step))
        for variable, expected in recorded.get(str(step + 1), {}).items():
            np.testing.assert_allclose(variables[variable].numpy().ravel(), expected, rtol=1e-5, atol=1e-6)
            compared += 1
    assert compared == 5 * len(variables) - (0 if name == "bert_adam" else 5)


def test_adamw_is_that_of_keras():
    # Keras adds epsilon to the root of v, not of v'; one that does not matter makes both the same.
    initial = {variable: value for variable, value in initial_weights().items() if variable != UNUSED}
    ours = {variable: tf.Variable(value) for variable, value in initial.items()}
    theirs = [keras.Variable(value, name=variable.replace("/", "_")) for variable, value in initial.items()]
    optimizer = Optimizer(ours, OptimizerOptions(name="adamw", weight_decay=0.1, beta_2=0.98, epsilon=1e-9))
    oracle = keras.optimizers.AdamW(weight_decay=0.1, beta_2=0.98, epsilon=1e-9)
    oracle.exclude_from_weight_decay(var_names=["LayerNorm", "bias"])
    for step, rate in enumerate(rates()):
        tensors = [tf.constant(gradient) for gradient in gradients(step).values()]
        optimizer.apply(tensors, tf.constant(rate, tf.float32), tf.constant(step))
        oracle.learning_rate = rate
        oracle.apply(tensors, theirs)
        for variable, their_variable in zip(ours.values(), theirs, strict=True):
            np.testing.assert_allclose(variable.numpy(), their_variable.numpy(), rtol=1e-5, atol=1e-6)
