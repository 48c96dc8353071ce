# ruff: noqa: E402 (the backend is started before anything that needs it is imported)
"""Program: exchange values between processes of JAX and train together, and write what this process has.

Arguments:
    address, number of processes, index of this process: the process group.
    case: a case of `updates.run_case`, as JSON.
    directory: a directory that all processes share. The results are the files INDEX.json and, from steps of both,
        INDEX.npz.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from beambert.trainers.backends.startup import start_backend
from beambert.trainers.options import ProcessGroup, TrainingOptions

address, count, index, directory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[5])
start_backend("jax", processes=ProcessGroup(address, count, index))

import keras
import numpy as np

from beambert.trainers.backends.jax.distribution import open_distribution
from beambert.trainers.backends.jax.train_step import Trainer
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.errors import TrainingError
from beambert.trainers.objective import Objective
from beambert.trainers.training import several_processes
from tests.trainers.backends.updates import run_case

result: dict[str, object] = {}
try:
    open_distribution("single")
except TrainingError as error:
    result["single"] = str(error)

distribution = open_distribution("auto")
with distribution.machine_errors():
    weight = keras.Variable(np.array([-0.0, 1.5, index], np.float32))
    several_processes.send(distribution, {"weight": weight})
    result["sent"] = weight.numpy().view(np.int32).tolist()

    # The slots of a kernel of this size are sharded.
    kernel = keras.Variable(np.ones((64, 32), np.float32))
    objective = Objective({"kernel": kernel}, lambda features, seed: {}, lambda features: {})
    numbers = {"num_train_steps": 2, "num_warmup_steps": 0, "learning_rate": 0.1}
    config = TrainingOptions(**numbers, seed=1, shard_optimizer_state=True)
    trainer = Trainer(
        objective,
        TrainingOptions(num_train_steps=2, num_warmup_steps=0, learning_rate=0.1, seed=1, shard_optimizer_state=True),
        distribution,
    )
    assert trainer.slot_axes
    values = trainer.checkpoint_values()
    if distribution.is_chief:
        checkpoint_manager.save(directory, 0, values)
    distribution.barrier()
    trainer.state()
    for variable in trainer.saved_variables.values():
        variable.assign(variable.value + 1)
    several_processes.restore(distribution, Checkpoint.of_step(directory, 0), trainer.saved_variables, None)
    result["restored"] = {
        name: np.unique(variable.numpy()).tolist() for name, variable in trainer.saved_variables.items()
    }
    np.savez(directory / f"{index}.npz", **run_case(json.loads(sys.argv[4]), distribution))
(directory / f"{index}.json").write_text(json.dumps(result), encoding="utf-8")
