"""`run.json`: what a run was made of, so that its directory is never continued by a different one.

This file imports neither Keras nor TensorFlow.
"""

import dataclasses
import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from bert_model import native
from bert_model.config import BertConfig
from pipelines.dataset import Dataset
from trainers.errors import TrainingError

FILE_NAME = "run.json"
# What became of every weight of --init_checkpoint.
INITIAL_WEIGHTS_NAME = "init_checkpoint.txt"
FORMAT = "beambert-pretraining-run"
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The content of `run.json`.

    Attributes:
        data_fingerprint: hex digest of all that the manifest says of the shards and the vocabulary.
        vocab_sha256: hex digest of `vocab.txt`.
        do_lower_case: whether text is lower-cased and stripped of accents before WordPiece.
        max_seq_length: longest sequence the model was trained on.
        seed: of the weights, the order of the data and dropout.
        train_batch_size: examples an update.
        options: every option of the command.
        versions: Python and packages.
    """

    data_fingerprint: str
    vocab_sha256: str
    do_lower_case: bool
    max_seq_length: int
    seed: int
    train_batch_size: int
    options: dict[str, Any]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Serialises to the text of `run.json`, keys sorted."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load(output: Path) -> RunRecord | None:
    """The record of a run's directory, or None if the directory holds no run.

    Raises:
        TrainingError: the record cannot be read.
    """
    path = output / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["format_version"] != FORMAT_VERSION:
            raise TrainingError(f"{path} was not written by this version of beambert; give another --output")
        return RunRecord(**{field.name: content[field.name] for field in dataclasses.fields(RunRecord)})
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} cannot be read ({error}); give another --output") from error


def has_checkpoints(output: Path) -> bool:
    """Whether a run's directory holds a whole checkpoint; without one there is nothing to be continued."""
    return any((output / native.CHECKPOINTS_NAME).glob("*.index"))


def check_same_run(
    output: Path, old: RunRecord, new: RunRecord, old_config: BertConfig, new_config: BertConfig
) -> None:
    """Refuses to continue a run with what would make it another one.

    Raises:
        TrainingError: data, seed, batch size or model differ; the message names every value that does.
    """
    pairs = [("data_fingerprint", "the data of --data"), ("seed", "--seed"), ("train_batch_size", "--train_batch_size")]
    differences = [
        f"{words} ({_short(getattr(old, name))} there, {_short(getattr(new, name))} now)"
        for name, words in pairs
        if getattr(old, name) != getattr(new, name)
    ]
    differences += [
        f"{field.name} of the model ({getattr(old_config, field.name)} there, {getattr(new_config, field.name)} now)"
        for field in dataclasses.fields(BertConfig)
        if getattr(old_config, field.name) != getattr(new_config, field.name)
    ]
    if differences:
        raise TrainingError(
            f"{output} holds a run that differs in {', '.join(differences)}; give another --output, or the options "
            f"that {output / FILE_NAME} records"
        )


def schedule_changes(old: RunRecord, new: RunRecord) -> list[str]:
    """What of the learning rate's course differs between two records of a run, which may go on nevertheless."""
    return [
        f"{name} {old.options.get(name)} to {new.options.get(name)}"
        for name in ("num_train_steps", "num_warmup_steps", "learning_rate")
        if old.options.get(name) != new.options.get(name)
    ]


def fingerprint(dataset: Dataset) -> str:
    """Hex SHA-256 of the manifest without the versions it was built with."""
    content = dataclasses.asdict(dataset)
    del content["versions"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a run's numbers."""
    packages = ("keras", "numpy", "tensorflow")
    return {"python": platform.python_version(), **{package: metadata.version(package) for package in packages}}


def _short(value: object) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 12 else str(value)
