# ruff: noqa: E402 (the backend is started before anything that needs it is imported)
"""Program: run TensorFlow steps that take a known time, and print the seconds that they waited for batches.

Run by test_waiting_seconds.py in a process of its own. Arguments: the number of steps, and the seconds of a step.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from trainers.backends.startup import start_backend

start_backend("tensorflow")
STEPS, SECONDS = int(sys.argv[1]), float(sys.argv[2])

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from trainers.backends.backend import TrainConfig, load
from trainers.data.batches import Batches
from trainers.objective import Objective


def slow(values):
    time.sleep(SECONDS)
    return values


def sums_of(features, seed):
    x = tf.ensure_shape(tf.numpy_function(slow, [features["input_ids"]], tf.float32), [2])
    return {"error": (ops.sum(ops.square(slope * x - 1.0)), ops.sum(ops.ones_like(x)))}


slope = keras.Variable(0.0)
task = Objective({"slope": slope}, sums_of, lambda features: {"error": ops.sum(ops.ones_like(features["input_ids"]))})
batch = {"input_ids": np.ones(2, np.float32)}
batches = Batches(STEPS, {"input_ids": ((2,), np.dtype(np.float32))}, lambda first: iter([batch] * (STEPS - first)))
config = TrainConfig(num_train_steps=100, num_warmup_steps=0, learning_rate=0.001, seed=1)
backend = load("tensorflow")
trainer = backend.make_trainer(task, config, backend.open_distribution("single"))
with trainer.make_steps(lambda shard: batches) as run_steps:
    results = run_steps(0, STEPS, 0)
print(results.seconds_waiting)
