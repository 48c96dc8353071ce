import dataclasses
import importlib.util
import math
import os
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks.jax_step import random_weights
from benchmarks.random_rows import random_features
from bert_model.checkpoints.variable_names import variables_by_tf1_name
from bert_model.config import BertConfig
from bert_model.pretraining import BertForPretraining, pretraining_losses
from tests.conftest import ROOT
from trainers.optimization.optimizer_options import OptimizerOptions
from trainers.optimization.optimizers import Optimizer, clip_by_global_norm

SHAPE = {"batch_size": 4, "max_seq_length": 16, "max_predictions_per_seq": 5}
UPDATES = 3


def start(*flags):
    """The benchmark under JAX; it fails by itself if TensorFlow was imported."""
    shape = [part for name, value in SHAPE.items() for part in (f"--{name}", str(value))]
    arguments = ["--model", "tiny", "--vocab_size", "200", "--steps", str(UPDATES), "--warm_up_steps", "1"]
    return subprocess.Popen(
        [sys.executable, ROOT / "benchmarks/jax_step.py", *arguments, *shape, *flags],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def losses_of(process):
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "MFU" in printed
    return [float(loss) for loss in re.search(r"loss (\S+) at first, (\S+) after 3 steps", printed).groups()]


def losses_under_tensorflow():
    config = dataclasses.replace(
        BertConfig.preset("tiny", vocab_size=200), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = BertForPretraining(config)
    variables = {name: variable.value for name, variable in variables_by_tf1_name(model).items()}
    for name, values in random_weights(config).items():
        variables[name].assign(values)
    optimizer = Optimizer(variables, OptimizerOptions())
    features = random_features(config.vocab_size, *SHAPE.values())
    losses = []
    for number in range(UPDATES + 1):
        with tf.GradientTape() as tape:
            loss = pretraining_losses(model(features), features).total
        losses.append(float(loss))
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, list(variables.values()))]
        clipped, _ = clip_by_global_norm(gradients, 1.0)
        optimizer.apply(clipped, tf.constant(1e-4), tf.constant(number))
    return losses


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_the_step_under_jax_is_that_under_tensorflow():
    exact, usual = start("--dropout", "0", "--precision", "float32"), start("--peak_tflops", "1")
    losses = losses_under_tensorflow()
    assert losses[-1] < losses[0] - 0.1
    assert losses_of(exact) == pytest.approx([losses[0], losses[-1]], rel=1e-4)
    # With dropout, in bfloat16.
    first, last = losses_of(usual)
    assert math.isfinite(first)
    assert first == pytest.approx(losses[0], rel=0.1)
    assert last < first
