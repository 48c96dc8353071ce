"""Compare the run in a directory with the requested run, by all options and files that affect the results.

This file imports neither Keras nor TensorFlow.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints import native
from beambert.common.command_line.options import options_of
from beambert.common.tokenizer_files import TOKENIZER_CONFIG_FILE_NAME
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TRAIN
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.task_names import module_of
from beambert.trainers.options import OnResume
from beambert.trainers.training.run_manifest import recorded_value

# Options that are paths: the content is compared, not the path.
_DATA = ("data_dir", "train_file", "predict_file")
_MODEL = ("init_checkpoint", "model", "vocab_file", "added_tokens", "bert_config_file")
# Options that affect only floating-point rounding, or with the backend also random numbers; --precision affects scores.
_ROUNDING = [
    option.name
    for option in options_of(FinetuneOptions)
    if option.annotation(OnResume) is OnResume.NUMERICS and option.name != "precision"
]
# The other options with an effect on scores. Without a flag are those that follow from the number of examples.
_COMPARED = [
    option.name
    for option in options_of(FinetuneOptions)
    if option.flag and option.annotation(OnResume) is not OnResume.NO_EFFECT
    if option.name not in (*_ROUNDING, *_DATA, *_MODEL)
]
# Options whose default, shown here, is resolved before run.json records them.
_RESOLVED = {"best_metric": None, "max_seq_length": None, "eval_steps": 0, "group_by_length": None}
# Files of a model directory that a run reads. The index of a checkpoint contains a checksum of every tensor.
_MODEL_FILES = ("*.ckpt*", "*.safetensors", "*.bin", "*config*.json", native.VOCAB_FILE_NAME)

Options = Mapping[str, Any]
Contents = Mapping[str, str | None]


def contents_of(config: FinetuneOptions, required: bool) -> dict[str, str | None]:
    """Return a digest of the content of each path option.

    Args:
        config: options of `finetune`.
        required: whether unreadable data is an error.

    Returns:
        Hex digests by "data" and by the names of the model options; None for missing files.

    Raises:
        TaskDataError: the files of the task are required and cannot be read.
    """
    contents = {name: _model_digest(value) for name in _MODEL if (value := getattr(config, name)) is not None}
    try:
        task = module_of(config.task).open_task(config, {TRAIN, DEV}, None)
        prints = [task.fingerprint(split) for split in sorted(task.splits)]
        contents["data"] = hashlib.sha256("\n".join(prints).encode()).hexdigest()
    except TaskDataError:
        if required:
            raise
        contents["data"] = None
    return contents


def differences(recorded: Options, contents: Contents, requested: Options, contents_now: Contents) -> list[str]:
    """Return the differences between the requested run and an existing run.

    Args:
        recorded: options of the existing run.
        contents: digests of `contents_of` of the existing run; {} where they are not recorded, so that paths are
            compared.
        requested: options of the requested run.
        contents_now: digests of `contents_of` of the requested run.

    Returns:
        A text for each option that differs, with both values.
    """
    only_record = not contents
    texts = []
    for name in _COMPARED:
        if name == "best_metric" and not (requested["eval_steps"] or requested["early_stopping"]):
            # It has an effect only with evaluations during training.
            continue
        old, new = recorded_value(recorded, name), requested[name]
        if only_record and name in _RESOLVED and new == _RESOLVED[name]:
            continue
        if old != new:
            texts.append(_difference(name, old, new))
    for name in _MODEL:
        texts += _path_difference(name, recorded, contents.get(name), requested, contents_now.get(name))
    paths = [name for name in _DATA if requested.get(name) != recorded.get(name)]
    before, now = contents.get("data"), contents_now.get("data")
    if before is None or now is None:
        texts += [text for name in paths for text in _path_difference(name, recorded, None, requested, None)]
    elif before != now and paths:
        texts += [_difference(name, recorded.get(name), requested.get(name)) for name in paths]
    elif before != now and not texts:
        # Options such as --max_train_samples change the digest too, and are reported instead.
        texts.append(f"the files of --data_dir {requested['data_dir']}, which have changed")
    return texts


def option_differences(recorded: Options, requested: Options) -> list[str]:
    """Return the differences recorded in `run.json`, except paths, which may have moved."""
    recorded = {**recorded, **{name: requested.get(name) for name in _DATA + _MODEL}}
    return differences(recorded, {}, requested, {})


def differences_now(record: Options, config: FinetuneOptions, contents_now: Contents) -> list[str]:
    """Return the differences between the requested run and an existing run without recorded digests.

    Another path is no difference if both paths have the same content now.

    Args:
        record: options in `run.json` of the existing run.
        config: options of the requested run.
        contents_now: digests of `contents_of` of the requested run.
    """
    requested = config.to_json()
    differ = differences(record, {}, requested, contents_now)
    if not differ:
        return []
    paths: dict[str, Any] = {name: record.get(name) for name in _DATA + _MODEL}
    contents = contents_of(dataclasses.replace(config, **paths), required=False)
    if None in contents.values() or contents != contents_now:
        return differ
    return option_differences(record, requested)


def rounding_differences(recorded: Options, requested: Options) -> list[str]:
    """Return the options that differ and affect only floating-point rounding, with both values."""
    return [
        _difference(name, recorded_value(recorded, name), requested[name])
        for name in sorted(_ROUNDING)
        if recorded_value(recorded, name) != requested[name]
    ]


def _difference(name: str, old: object, new: object) -> str:
    return f"--{name} ({_shown(old)} before, {_shown(new)} now)"


def _shown(value: object) -> str:
    return "not set" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


def _path_difference(
    name: str, recorded: Options, before: str | None, requested: Options, now: str | None
) -> Iterator[str]:
    """Yield the difference between two paths: of the content where both digests are known, else of the paths."""
    old, new = recorded.get(name), requested.get(name)
    if before is not None and now is not None:
        if before != now and _resolved(old) == _resolved(new):
            yield f"--{name} {new}, which has changed"
        elif before != now:
            yield _difference(name, old, new)
    elif _resolved(old) != _resolved(new):
        yield _difference(name, old, new)


def _resolved(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser().resolve()


def _model_digest(value: str) -> str | None:
    """Return the hex digest of a model directory or file; None otherwise."""
    path = Path(value)
    files = [file for file in _model_files(path) if file.is_file()]
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _model_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        prefix = native.model_checkpoint(path) if (path / native.FILE_NAME).exists() else None
        if prefix is None:
            files = {file for pattern in _MODEL_FILES for file in path.glob(pattern)}
            return sorted(file for file in files if ".data-" not in file.name)
        directory = path
    else:
        prefix, directory = path, path.parent
    names = (native.CONFIG_FILE_NAME, native.VOCAB_FILE_NAME, TOKENIZER_CONFIG_FILE_NAME)
    return [Path(f"{prefix}.index"), *(directory / name for name in names)]
