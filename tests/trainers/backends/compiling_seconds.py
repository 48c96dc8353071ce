# ruff: noqa: E402 (the backend is started before anything that needs it is imported)
"""Program: run steps of an objective whose tracing takes a known time, and print the results as JSON.

Run by test_compiling_seconds.py in processes of their own. Arguments: the backend, and the seconds that tracing takes.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from trainers.backends.startup import start_backend

start_backend(sys.argv[1])
SECONDS = float(sys.argv[2])

import keras
import numpy as np
from keras import ops

from trainers.backends.backend import TrainConfig, load
from trainers.data.batches import Batches
from trainers.objective import Objective

BACKEND = load(sys.argv[1])
# Batches of two sizes; the third call of `run_steps` has the first one of the second size.
SIZES = (2, 2, 2, 2, 2, 2, 2, 4, 2)


def sums_of(features, seed):
    """Return the metric sums; the code runs when a step is traced, not when it is computed."""
    time.sleep(SECONDS)
    x = features["input_ids"]
    return {"error": (ops.sum(ops.square(slope * x - 1.0)), ops.sum(ops.ones_like(x)))}


slope = keras.Variable(0.0)
task = Objective({"slope": slope}, sums_of, lambda features: {"error": ops.sum(ops.ones_like(features["input_ids"]))})
elements = [{"input_ids": np.arange(size, dtype=np.float32) + step} for step, size in enumerate(SIZES)]
batches = Batches(len(SIZES), {"input_ids": ((None,), np.dtype(np.float32))}, lambda first: iter(elements[first:]))
config = TrainConfig(num_train_steps=100, num_warmup_steps=0, learning_rate=0.001, seed=1)
trainer = BACKEND.make_trainer(task, config, BACKEND.open_distribution("single"))
with trainer.make_steps(lambda shard: batches) as run_steps:
    first = run_steps(0, 3, 0)
    calls = [first] + [run_steps(start, count, 0) for start, count in ((3, 3), (6, 2), (8, 1))]
slope.assign(0.0)
for slots in trainer.optimizer.slots.values():
    slots.assign(np.zeros(slots.shape))
with trainer.make_steps(lambda shard: batches) as run_steps:
    single = [run_steps(step, 1, 0).sums for step in range(3)]
print(
    json.dumps(
        {
            "compiling": [results.seconds_compiling for results in calls],
            "waiting": [results.seconds_waiting for results in calls],
            "together": first.sums,
            "single": single,
        }
    )
)
