"""Run `beambert pretrain --backend jax` as several processes that train together on this machine."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_model.checkpoints import tf1
from tests.conftest import ROOT
from tests.trainers.backends.device_runs import free_address
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

# The command with a slow disk: a process that does not wait for the chief would not find the checkpoint.
SLOW_DISK = """
import sys, time
import beambert
from trainers.checkpoints import checkpoint_manager as checkpointing
save = checkpointing.save
def slowly(*arguments, **named):
    time.sleep(2)
    return save(*arguments, **named)
checkpointing.save = slowly
sys.exit(beambert.main(sys.argv[1:]))
"""


def write_inputs(directory: Path) -> None:
    """Write the data and the configuration of a model whose kernels are large enough to be sharded."""
    write_dataset(directory / "data")
    model = dataclasses.replace(SMALLEST, hidden_size=32, intermediate_size=64)
    (directory / "model.json").write_text(model.to_json(), encoding="utf-8")


def variables(run: Path, step: int) -> dict[str, np.ndarray]:
    """Return the content of a checkpoint by name."""
    return {name: tensor.read() for name, tensor in tf1.read(run / f"checkpoints/model.ckpt-{step}").items()}


class Cluster:
    """Processes of `beambert pretrain` that train together on this machine.

    Args:
        directory: directory of `write_inputs`, and of the outputs.
        output: value of --output.
        count: number of processes.
        flags: further flags of all processes.
        flags_of: further flags by the index of a process.
        steps: number of training steps; checkpoints are saved after each third of them.
    """

    def __init__(
        self,
        directory: Path,
        output: str,
        count: int,
        flags: Sequence[str] = (),
        flags_of: Mapping[int, Sequence[str]] | None = None,
        steps: int = 60,
    ) -> None:
        address = free_address()
        self.directory = directory
        self.output = output
        self.logs = [directory / f"{output}-{count}-{time.time_ns()}-{index}.log" for index in range(count)]
        self.processes = []
        for index, path in enumerate(self.logs):
            command = [sys.executable, "-c", SLOW_DISK, "pretrain", "--backend", "jax", "--data", "data", "--model"]
            command += ["model.json", "--output", output, "--num_train_steps", str(steps), "--train_batch_size", "8"]
            command += ["--save_checkpoints_steps", str(steps // 3), "--eval_batch_size", "4"]
            command += [*flags, *(flags_of or {}).get(index, ())]
            if count > 1:
                command += ["--coordinator_address", address, "--num_processes", str(count), "--process_id", str(index)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            with path.open("w") as log:
                process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, env=environment)
            self.processes.append(process)

    def wait_for(self, text: str) -> None:
        """Wait until the first process has printed a text."""
        while text not in self.log(0):
            assert self.processes[0].poll() is None, self.log(0)
            time.sleep(0.05)

    def wait_for_checkpoint(self, step: int) -> None:
        """Wait until the checkpoint of a step is complete."""
        while not (self.directory / self.output / f"checkpoints/model.ckpt-{step}.index").exists():
            assert self.processes[0].poll() is None, self.log(0)
            time.sleep(0.05)

    def log(self, index: int) -> str:
        return self.logs[index].read_text(encoding="utf-8")

    def codes(self) -> list[int]:
        """Return the exit codes of all processes."""
        return [process.wait(600) for process in self.processes]

    def finish(self) -> None:
        """Wait until the run is complete."""
        assert set(self.codes()) == {0}, self.log(0)
