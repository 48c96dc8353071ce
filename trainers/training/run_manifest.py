"""Read, write and compare `run.json`, the record of a run, so that only the same run resumes in its directory.

This file imports neither Keras nor TensorFlow.
"""

import contextlib
import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from beambert.bert_model.checkpoints import native
from beambert.bert_model.config import BertConfig
from beambert.common.command_line.options import options_of
from beambert.common.typed_json import Count, FormatError, JsonError, Positive, Sha256, decode, require, require_format
from beambert.common.word_rules import without_released_rules
from beambert.pipelines.dataset import Dataset
from beambert.pipelines.io.output_directory import RUN_MANIFEST
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.optimization.schedule import Stage, stage_at, stages_before
from beambert.trainers.options import OnResume
from beambert.trainers.pretraining.options import PretrainOptions

FILE_NAME = RUN_MANIFEST
# Lists which weights of --init_checkpoint were loaded.
INITIAL_WEIGHTS_NAME = "init_checkpoint.txt"
FORMAT = "beambert-run"
FORMAT_VERSION = 4

_OPTIONS = {option.name: option for cls in (PretrainOptions, FinetuneOptions) for option in options_of(cls)}
_TYPES = {name: option.type for name, option in _OPTIONS.items() if name != "given_options"}
# None for a command that does not train, and for a metric that the task determines.
_TYPES |= {name: _TYPES[name] | None for name in ("learning_rate", "num_train_steps", "best_metric")}
# The options of a training command with their JSON types. A file has the options of its command; unknown options are
# allowed.
RecordedOptions = TypedDict("RecordedOptions", _TYPES, total=False)  # type: ignore[misc]


def recorded_value(options: Mapping[str, Any], name: str) -> Any:
    """Return an option of a run; the default of an option that was added after the run."""
    return options[name] if name in options else _OPTIONS[name].default


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The content of `run.json`.

    Attributes:
        data_fingerprints: hex SHA-256 of the training data: of the manifest of each --data directory, or of the
            examples of a fine-tuning task.
        vocab_sha256: hex SHA-256 of `vocab.txt`.
        do_lower_case: whether text is lowercased before WordPiece.
        max_seq_length: longest sequence that the model is trained on, in tokens.
        stages: data and batch size of every step.
        options: all options of the command, by name.
        versions: versions of Python and of packages, by name.
        strip_accents, tokenize_chinese_chars: as in `WordRules`; not written where they are the released rules.
        evaluation_fingerprint: digest of the development examples of a fine-tuning run; None, and not written, for
            pretraining and without an evaluation.
    """

    data_fingerprints: tuple[str, ...]
    vocab_sha256: str
    do_lower_case: bool
    max_seq_length: int
    stages: tuple[Stage, ...]
    options: dict[str, Any]
    versions: dict[str, str]
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    evaluation_fingerprint: str | None = None

    @property
    def data_fingerprint(self) -> str:
        """Return the fingerprints as a single string, for the model record."""
        return ", ".join(self.data_fingerprints)

    def to_json(self) -> str:
        """Return the content of `run.json`, with sorted keys."""
        fields = without_released_rules(dataclasses.asdict(self))
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **fields}
        content["stages"] = [stage._asdict() for stage in self.stages]
        if self.evaluation_fingerprint is None:
            del content["evaluation_fingerprint"]
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _StageFields(TypedDict):
    data: Count
    batch_size: Positive
    first_step: Count
    end_step: Positive
    first_example: Count


class _RunFields(TypedDict):
    """The fields of `run.json`."""

    data_fingerprints: tuple[str, ...]
    vocab_sha256: Sha256
    do_lower_case: bool
    max_seq_length: Positive
    stages: list[_StageFields]
    options: dict[str, Any]
    versions: dict[str, str]
    strip_accents: NotRequired[bool | None]
    tokenize_chinese_chars: NotRequired[bool]
    evaluation_fingerprint: NotRequired[str]


def load(output: Path) -> RunRecord | None:
    """Return the record of a run directory, or None if the directory contains no run.

    Raises:
        TrainingError: the record cannot be read.
    """
    path = output / FILE_NAME
    remedy = f"give another --output, with --init_checkpoint {output} to start from its weights"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TrainingError(f"{path} cannot be read ({error.strerror or error}); give another --output") from error
    try:
        require_format(text, FORMAT, FORMAT_VERSION)
        fields = decode(text, _RunFields)
        require(fields["options"], RecordedOptions, "options")
        stages = tuple(Stage(**stage) for stage in fields["stages"])
        _require_order(stages, len(fields["data_fingerprints"]))
    except FormatError as error:
        raise TrainingError(f"{path} {error}; {remedy}") from error
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; restore it from a copy, or {remedy}") from error
    return RunRecord(
        data_fingerprints=fields["data_fingerprints"],
        vocab_sha256=fields["vocab_sha256"],
        do_lower_case=fields["do_lower_case"],
        max_seq_length=fields["max_seq_length"],
        stages=stages,
        options=fields["options"],
        versions=fields["versions"],
        strip_accents=fields.get("strip_accents"),
        tokenize_chinese_chars=fields.get("tokenize_chinese_chars", True),
        evaluation_fingerprint=fields.get("evaluation_fingerprint"),
    )


def _require_order(stages: Sequence[Stage], data: int) -> None:
    """Raise JsonError if the stages are not consecutive, or a stage has no data."""
    end = 0
    for number, stage in enumerate(stages):
        if stage.first_step != end or stage.end_step <= end:
            raise JsonError(
                f"stages[{number}] covers steps {stage.first_step} to {stage.end_step}, but must start at step {end}"
            )
        if stage.data >= data:
            raise JsonError(f"stages[{number}].data is {stage.data}, but data_fingerprints has {data} entries")
        end = stage.end_step


def last_step(output: Path) -> int | None:
    """Return the step of the last complete checkpoint in a run directory; None without a checkpoint."""
    last = native.checkpoint(output)
    return None if last is None else int(last.name.rpartition("-")[2])


def check_same_run(
    output: Path, step: int, old: RunRecord, new: RunRecord, old_config: BertConfig, new_config: BertConfig
) -> None:
    """Check that a run can be resumed with the options of a command.

    The data of the steps up to the checkpoint must be unchanged, so that the data order continues from there; later
    data may differ.

    Args:
        output: the run directory, for messages.
        step: step of the checkpoint to resume from.
        old: the record in the directory.
        new: the record of the command.
        old_config: configuration of the model in the directory.
        new_config: configuration of the model of the command.

    Raises:
        TrainingError: data, batch sizes, seed, task, optimizer or model differ; the message lists all differences.
    """
    differences, remedy = _stage_difference(step, old, new)
    differences += [
        f"--{name} ({_short(before)} before, {_short(now)} now)"
        for name, before, now in _changed(old, new, OnResume.FORBIDDEN)
    ]
    differences += model_differences(old_config, new_config)
    if differences:
        raise TrainingError(
            f"{output} contains a run that differs in {', '.join(differences)}; give another --output, or the options "
            f"recorded in {output / FILE_NAME}{remedy}"
        )


def model_differences(old: BertConfig, new: BertConfig) -> list[str]:
    """Return the values in which the configuration of a command's model differs from the recorded one, for messages."""
    return [
        f"model {field.name} ({getattr(old, field.name)} before, {getattr(new, field.name)} now)"
        for field in dataclasses.fields(BertConfig)
        if getattr(old, field.name) != getattr(new, field.name)
    ]


def changes(old: RunRecord, new: RunRecord) -> list[str]:
    """Return the changed options of a run that resumes, as lines to print."""
    lines = []
    if training := _changed(old, new, OnResume.LATER_STEPS):
        lines.append(f"Changed training options: {_shown(training)}")
    packages = sorted(old.versions.keys() & new.versions.keys())
    versions = [(name, old.versions[name], new.versions[name]) for name in packages]
    numerics = _changed(old, new, OnResume.NUMERICS) + [entry for entry in versions if entry[1] != entry[2]]
    if numerics:
        lines.append(f"Results are not bit-identical to an uninterrupted run: {_shown(numerics)}")
    return lines


def _changed(old: RunRecord, new: RunRecord, rule: OnResume) -> list[tuple[str, Any, Any]]:
    """Return (name, value before, value now) of each option with a rule that differs."""
    names = [option.name for option in _OPTIONS.values() if option.annotation(OnResume) is rule]
    values = [(name, recorded_value(old.options, name), recorded_value(new.options, name)) for name in names]
    return [entry for entry in values if entry[1] != entry[2]]


def _shown(changed: Sequence[tuple[str, Any, Any]]) -> str:
    return ", ".join(f"{name} {before} to {now}" for name, before, now in changed)


def _stage_difference(step: int, old: RunRecord, new: RunRecord) -> tuple[list[str], str]:
    """Return the first difference in the data of the steps before `step`, if any, and its remedy."""
    step = min(step, old.stages[-1].end_step, new.stages[-1].end_step)
    before, now = stages_before(old.stages, step), stages_before(new.stages, step)
    for first in sorted({stage.first_step for stage in (*before, *now)}):
        there, here = stage_at(before, first), stage_at(now, first)
        data = old.data_fingerprints[there.data], new.data_fingerprints[here.data]
        if data[0] != data[1]:
            return [f"the data at step {first} ({_short(data[0])} before, {_short(data[1])} now)"], ""
        if there.batch_size != here.batch_size:
            ramp = ",".join(f"{stage.batch_size}:{stage.end_step}" for stage in before)
            remedy = f", or --batch_ramp {ramp} to change the batch size only from this step on"
            return (
                [f"the batch size at step {first} ({there.batch_size} before, {here.batch_size} now)"],
                "" if new.options.get("task") else remedy,
            )
    return [], ""


def fingerprint(dataset: Dataset) -> str:
    """Return the hex SHA-256 of a manifest without its versions."""
    content = without_released_rules(dataclasses.asdict(dataset))
    del content["versions"]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def versions(backend: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that affect numerics.

    Args:
        backend: "tensorflow" or "jax".
    """
    packages = {package: metadata.version(package) for package in ("keras", "numpy")}
    library = _tensorflow_version() if backend == "tensorflow" else metadata.version("jax")
    return {"python": platform.python_version(), **packages, backend: library}


def _tensorflow_version() -> str:
    try:
        return metadata.version("tensorflow")
    except metadata.PackageNotFoundError:
        # On a TPU host the package tensorflow-tpu has the same modules.
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version("tensorflow-tpu")
        raise


def _short(value: object) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 12 else str(value)
