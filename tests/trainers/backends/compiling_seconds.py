"""Run steps of an objective whose tracing takes a known time, and write the results as JSON.

As a program with KERAS_BACKEND=jax: the arguments are the output file, and the seconds that tracing takes.
"""

import json
import sys
import time
from pathlib import Path

import keras
import numpy as np
from keras import ops

from trainers.backends.backend import TrainConfig, active_backend
from trainers.backends.startup import start_backend
from trainers.data.batches import Batches
from trainers.objective import Objective

# Batches of two sizes; the third call of `run_steps` has the first one of the second size.
SIZES = (2, 2, 2, 2, 2, 2, 2, 4, 2)


def write_compiling_seconds(output: Path, seconds: float) -> None:
    """Write the results of calls of `run_steps` with the active backend."""
    start_backend(keras.backend.backend())
    backend = active_backend()

    def sums_of(features, seed):
        """Return the metric sums; the code runs when a step is traced, not when it is computed."""
        time.sleep(seconds)
        x = features["input_ids"]
        return {"error": (ops.sum(ops.square(slope * x - 1.0)), ops.sum(ops.ones_like(x)))}

    slope = keras.Variable(0.0)
    task = Objective(
        {"slope": slope}, sums_of, lambda features: {"error": ops.sum(ops.ones_like(features["input_ids"]))}
    )
    elements = [{"input_ids": np.arange(size, dtype=np.float32) + step} for step, size in enumerate(SIZES)]
    shapes = {"input_ids": ((None,), np.dtype(np.float32))}
    batches = Batches(len(SIZES), shapes, lambda first: iter(elements[first:]))
    config = TrainConfig(num_train_steps=100, num_warmup_steps=0, learning_rate=0.001, seed=1)
    trainer = backend.make_trainer(task, config, backend.open_distribution("single"))
    with trainer.make_steps(lambda shard: batches) as run_steps:
        calls = [run_steps(start, count, 0) for start, count in ((0, 3), (3, 3), (6, 2), (8, 1))]
    slope.assign(0.0)
    for slots in trainer.optimizer.slots.values():
        slots.assign(np.zeros(slots.shape))
    with trainer.make_steps(lambda shard: batches) as run_steps:
        single = [run_steps(step, 1, 0).sums for step in range(3)]
    result = {
        "compiling": [results.seconds_compiling for results in calls],
        "together": calls[0].sums,
        "single": single,
    }
    output.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    write_compiling_seconds(Path(sys.argv[1]), float(sys.argv[2]))
