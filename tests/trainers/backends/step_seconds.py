"""Run steps that take a known time to trace or to compute, and write the seconds that they report.

As a program with KERAS_BACKEND=jax, it calls `write_compiling_seconds`; the arguments are the output file, and the
seconds that tracing takes.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
from keras import ops

from beambert.trainers.backends.backend import Trainer, active_backend
from beambert.trainers.backends.startup import start_backend
from beambert.trainers.data.pipeline import Batches
from beambert.trainers.objective import Objective, Tensor
from beambert.trainers.options import TrainingOptions

# Batches of two sizes; the third call of `run_steps` has the first one of the second size.
SIZES = (2, 2, 2, 2, 2, 2, 2, 4, 2)


def open_trainer(delayed: Callable[[Tensor], Tensor]) -> tuple[keras.Variable, Trainer]:
    """Return a variable, and a trainer of it with the active backend; `delayed` returns the inputs of a step later."""
    slope = keras.Variable(0.0)

    def sums_of(features, seed):
        x = delayed(features["input_ids"])
        return {"error": (ops.sum(ops.square(slope * x - 1.0)), ops.sum(ops.ones_like(x)))}

    task = Objective(
        {"slope": slope}, sums_of, lambda features: {"error": ops.sum(ops.ones_like(features["input_ids"]))}
    )
    config = TrainingOptions(num_train_steps=100, num_warmup_steps=0, learning_rate=0.001, seed=1)
    backend = active_backend()
    return slope, backend.make_trainer(task, config, backend.open_distribution("single"))


def batches_of(sizes: Sequence[int]) -> Batches:
    """Return batches of the given sizes."""
    elements = [{"input_ids": np.arange(size, dtype=np.float32) + step} for step, size in enumerate(sizes)]
    return Batches(len(sizes), {"input_ids": ((None,), np.dtype(np.float32))}, lambda first: iter(elements[first:]))


def write_compiling_seconds(output: Path, seconds: float) -> None:
    """Write the results of calls of `run_steps` with the active backend, as JSON."""
    start_backend(keras.backend.backend())

    def delayed(x):
        """Sleep when a step is traced, not when it is computed."""
        time.sleep(seconds)
        return x

    slope, trainer = open_trainer(delayed)
    with trainer.make_steps(lambda shard: batches_of(SIZES)) as run_steps:
        calls = [run_steps(start, count, 0) for start, count in ((0, 3), (3, 3), (6, 2), (8, 1))]
    slope.assign(0.0)
    for slots in trainer.optimizer.slots.values():
        slots.assign(np.zeros(slots.shape))
    with trainer.make_steps(lambda shard: batches_of(SIZES)) as run_steps:
        single = [run_steps(step, 1, 0).sums for step in range(3)]
    result = {
        "compiling": [results.seconds_compiling for results in calls],
        "together": calls[0].sums,
        "single": single,
    }
    output.write_text(json.dumps(result), encoding="utf-8")


def write_waiting_seconds(output: Path, steps: int, seconds: float) -> None:
    """Write the seconds of waiting of TensorFlow steps that take `seconds` each, with one thread for the operations."""
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    start_backend("tensorflow")
    import tensorflow as tf

    def slow(values):
        time.sleep(seconds)
        return values

    _, trainer = open_trainer(lambda x: tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), [2]))
    with trainer.make_steps(lambda shard: batches_of([2] * steps)) as run_steps:
        output.write_text(str(run_steps(0, steps, 0).seconds_waiting), encoding="utf-8")


if __name__ == "__main__":
    write_compiling_seconds(Path(sys.argv[1]), float(sys.argv[2]))
