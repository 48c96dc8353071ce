"""Read checkpoints on the chief and send weights to the other processes, which need not see its disk."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.trainers.backends.backend import Distribution
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint, Variable
from beambert.trainers.errors import TrainingError


def decided_by_chief(distribution: Distribution, decide: Callable[[], Any]) -> Any:
    """Return the result of a function in all processes; only the chief calls it.

    Args:
        distribution: the devices.
        decide: function without arguments, with a JSON value as its result.

    Raises:
        TrainingError, CheckpointError: the chief raised it; every process raises an error with the same message.
    """
    if not distribution.several_processes:
        return decide()
    answer: dict[str, Any] = {}
    own_error = None
    if distribution.is_chief:
        try:
            answer["value"] = decide()
        except (TrainingError, CheckpointError) as error:
            own_error = error
            answer["error"] = str(error)
    content = np.frombuffer(json.dumps(answer).encode(), np.uint8)
    (length,) = distribution.from_chief(np.array([content.size], np.int32))
    answer = json.loads(distribution.from_chief(np.resize(content, length)).tobytes())
    if "error" in answer:
        raise own_error or TrainingError(answer["error"])
    return answer["value"]


def last_checkpoint(distribution: Distribution, directory: Path) -> Checkpoint | None:
    """Return the last checkpoint of the chief in all processes; None without one."""

    def last_step() -> int | None:
        saved = checkpoint_manager.checkpoints(directory)
        return saved[-1].step if saved else None

    step = decided_by_chief(distribution, last_step)
    return None if step is None else Checkpoint.of_step(directory, step)


def restore(
    distribution: Distribution, checkpoint: Checkpoint, variables: Mapping[str, Variable], vocab_size: int | None
) -> None:
    """Assign the values of a checkpoint of the chief to the variables of all processes.

    Args:
        distribution: the devices.
        checkpoint: a complete checkpoint on the chief's disk.
        variables: float32 variables by their names in the checkpoint.
        vocab_size: as for `checkpoint_manager.restore`.

    Raises:
        TrainingError: the checkpoint cannot be read, lacks a variable or has it with another shape.
    """
    decided_by_chief(distribution, lambda: checkpoint_manager.restore(checkpoint.prefix, variables, vocab_size))
    send(distribution, variables)


def send(distribution: Distribution, variables: Mapping[str, Variable]) -> None:
    """Assign the values of the chief to the variables of all processes.

    Args:
        distribution: the devices.
        variables: float32 variables by name; on the chief none is sharded over processes.
    """
    if not distribution.several_processes:
        return
    for name in sorted(variables):
        variable = variables[name]
        # As integers, because a sum over processes would change the sign of -0.0. The other processes may have only
        # parts of a sharded value, and send zeros.
        sent = variable.numpy().view(np.int32) if distribution.is_chief else np.zeros(variable.shape, np.int32)
        bits = distribution.from_chief(sent)
        if not distribution.is_chief:
            variable.assign(bits.view(np.float32))
