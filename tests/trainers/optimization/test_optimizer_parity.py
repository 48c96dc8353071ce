"""Test the optimizers against results recorded by tests/parity/record_optimizers.py, and against Keras."""

import json

import keras
import numpy as np
import pytest

from tests.conftest import ROOT
from tests.trainers.optimization.optimizer_problem import SHAPES, STEPS, UNUSED, gradients, initial_weights, rates
from tests.trainers.optimization.optimizer_steps import make_step, new_optimizer
from trainers.optimization.optimizer_options import OPTIMIZERS, OptimizerOptions


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_the_recorded_run(name, is_compiled, steps_made):
    """Compare with recorded weights; for bert_adam, the released code also computed the learning rates.

    The tolerance is that of its float32.
    """
    recorded = json.loads((ROOT / "tests/fixtures/optimizers.json").read_text(encoding="utf-8"))[name]
    results = steps_made(name, "released", is_compiled)
    compared = 0
    for step in range(STEPS):
        for variable, expected in recorded.get(str(step + 1), {}).items():
            np.testing.assert_allclose(results[f"{step + 1}:{variable}"].ravel(), expected, rtol=1e-5, atol=1e-6)
            compared += 1
    assert compared == 5 * len(SHAPES) - (0 if name == "bert_adam" else 5)


def test_adamw_is_that_of_keras():
    # Keras adds epsilon to the root of v, not of v'. With a negligible epsilon, both are equal.
    initial = {variable: value for variable, value in initial_weights().items() if variable != UNUSED}
    theirs = [keras.Variable(value, name=variable.replace("/", "_")) for variable, value in initial.items()]
    ours = new_optimizer(initial, OptimizerOptions(name="adamw", weight_decay=0.1, beta_2=0.98, epsilon=1e-9))
    oracle = keras.optimizers.AdamW(weight_decay=0.1, beta_2=0.98, epsilon=1e-9)
    oracle.exclude_from_weight_decay(var_names=["LayerNorm", "bias"])
    for step, rate in enumerate(rates()):
        given = gradients(step)
        make_step(ours, given, rate, step)
        oracle.learning_rate = rate
        oracle.apply([keras.ops.convert_to_tensor(given[name]) for name in initial], theirs)
        for variable, their_variable in zip(ours.variables.values(), theirs, strict=True):
            np.testing.assert_allclose(variable.numpy(), their_variable.numpy(), rtol=1e-5, atol=1e-6)
