"""Make several processes agree: on data and options, on the chief's decisions, and on its checkpoints and weights.

Only the chief writes files, and the other processes need not see its disk.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig
from beambert.trainers.backends.backend import Distribution
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint, Variable
from beambert.trainers.errors import TrainingError
from beambert.trainers.training.run_manifest import RunRecord

# Options that differ by process.
_OWN_OPTIONS = ("process_id",)
# What to do about a difference, by its name.
_REMEDIES = {
    "data": "copy the same data to every machine",
    "model": "give the same --model to every process, also to resume a run whose --output is not on every machine",
    "steps": (
        "give the same flags to every process; to resume a run of --max_train_time whose --output is not on every "
        "machine, give the --num_train_steps recorded in its run.json instead"
    ),
    "options": "give the same flags to every process, except --process_id",
    "code": "install the same version of beambert on every machine",
    "packages": "install the same Python and packages on every machine",
}


def check_agreement(
    distribution: Distribution, record: RunRecord, model_config: BertConfig, *, causal_attention: bool
) -> None:
    """Check that all processes have the same data, model, options, code and packages.

    Args:
        distribution: the devices; with a single process, nothing is checked.
        record: content of `run.json`.
        model_config: configuration of the model.
        causal_attention: whether the model has causal attention.

    Raises:
        TrainingError: a process differs from the first one.
    """
    if not distribution.several_processes:
        return
    options = {name: value for name, value in record.options.items() if name not in _OWN_OPTIONS}
    parts: Mapping[str, Any] = {
        "data": (record.data_fingerprints, record.vocab_sha256),
        "model": (dataclasses.asdict(model_config), causal_attention),
        "steps": record.stages,
        "options": options,
        "code": _code_digest(Path(__file__).parents[2]),
        "packages": record.versions,
    }
    digests = np.stack([_digest(parts[name]) for name in _REMEDIES])
    of_processes = distribution.gather_from_processes(digests)  # [processes, parts, 32]
    for process, others in enumerate(of_processes):
        for name, first, other in zip(_REMEDIES, of_processes[0], others, strict=True):
            if not np.array_equal(first, other):
                raise TrainingError(f"process {process} and process 0 differ in {name}: {_REMEDIES[name]}")


def _digest(part: Any) -> np.ndarray:
    """Return the SHA-256 of a JSON-serializable value, uint8 [32]."""
    text = json.dumps(part, sort_keys=True)
    return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)


def _code_digest(root: Path) -> str:
    """Return a digest of the modules that determine the results of training."""
    digest = hashlib.sha256()
    for package in ("bert_model", "trainers"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


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
