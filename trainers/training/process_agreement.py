"""Check that all processes that train together have the same data, model, options, code and packages."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.trainers.backends.backend import Distribution
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
    of_processes = distribution.gathered(digests)  # [processes, parts, 32]
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
