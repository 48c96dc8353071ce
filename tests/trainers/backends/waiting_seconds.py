"""Run TensorFlow steps that take a known time, and measure the seconds that they waited for batches."""

import os
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from trainers.backends.backend import TrainConfig, load
from trainers.backends.startup import start_backend
from trainers.data.batches import Batches
from trainers.objective import Objective


def write_waiting_seconds(output: Path, steps: int, seconds: float) -> None:
    """Write the seconds of waiting of steps that take `seconds` each, with one thread for the operations of a step."""
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    start_backend("tensorflow")

    def slow(values):
        time.sleep(seconds)
        return values

    def sums_of(features, seed):
        x = tf.ensure_shape(tf.numpy_function(slow, [features["input_ids"]], tf.float32), [2])
        return {"error": (ops.sum(ops.square(slope * x - 1.0)), ops.sum(ops.ones_like(x)))}

    slope = keras.Variable(0.0)
    task = Objective(
        {"slope": slope}, sums_of, lambda features: {"error": ops.sum(ops.ones_like(features["input_ids"]))}
    )
    batch = {"input_ids": np.ones(2, np.float32)}
    batches = Batches(steps, {"input_ids": ((2,), np.dtype(np.float32))}, lambda first: iter([batch] * (steps - first)))
    config = TrainConfig(num_train_steps=100, num_warmup_steps=0, learning_rate=0.001, seed=1)
    backend = load("tensorflow")
    trainer = backend.make_trainer(task, config, backend.open_distribution("single"))
    with trainer.make_steps(lambda shard: batches) as run_steps:
        output.write_text(str(run_steps(0, steps, 0).seconds_waiting), encoding="utf-8")
