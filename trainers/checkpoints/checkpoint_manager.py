"""Save, restore and remove checkpoints in the format of the released BERT's, and record the best one.

`model.ckpt-<step>.index` and `.data-00000-of-00001` contain all weights, the optimizer slots `<weight>/<slot>` and
`global_step`, readable by `tf.train.load_checkpoint`. `.state.json` contains the run's other state. The index is
written last and removed first: a checkpoint is complete if and only if its index exists. `best.json` records the
checkpoint with the best evaluation.

This file imports neither Keras nor TensorFlow.
"""

import errno
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np

from beambert.bert_model.checkpoints import tensor_bundle
from beambert.bert_model.checkpoints.tensor_bundle import numpy_dtype
from beambert.bert_model.size import is_padded, with_padding, without_padding
from beambert.common import file_errors
from beambert.common.local_files import synchronize, write_atomic
from beambert.common.typed_json import Count, JsonError, NonEmpty, NonNegative, Number, read, require
from beambert.trainers.errors import StorageError, TrainingError
from beambert.trainers.optimization.update_rules import initial_value
from beambert.trainers.options import TrainingOptions

GLOBAL_STEP = "global_step"

_FILE_NAME = re.compile(r"(model\.ckpt-(\d+))\.(index|data-\d{5}-of-\d{5}|state\.json)")
_UNFINISHED = ".unfinished"
BEST_FILE_NAME = "best.json"
# The name of a metric is one of these words, or ends with an underscore and one of them.
LOWER_IS_BETTER = ("loss", "error", "perplexity")
HIGHER_IS_BETTER = ("accuracy", "f1", "precision", "recall", "exact", "exact_match", "pearson", "spearman", "matthews")


class Variable(Protocol):
    """A variable of a running model, such as a tf.Variable, a MirroredVariable or a keras.Variable."""

    @property
    def shape(self) -> Any:
        """The sizes: a tuple or a tf.TensorShape."""

    @property
    def dtype(self) -> Any:
        """The dtype: its name, a numpy dtype or a tf.DType."""

    def numpy(self) -> np.ndarray:
        """Return the value."""

    def assign(self, value: Any, /) -> Any:
        """Replace the value by an array."""


class Checkpoint(NamedTuple):
    """A complete checkpoint: the step it was saved after, and its path without `.index`."""

    step: int
    prefix: Path

    @classmethod
    def of_step(cls, directory: Path, step: int) -> "Checkpoint":
        """Return the checkpoint of a step, whether or not its files exist."""
        return cls(step, directory / f"model.ckpt-{step}")

    @property
    def index_file(self) -> Path:
        """Return the file whose presence makes the checkpoint complete."""
        return Path(f"{self.prefix}.index")

    @property
    def state_file(self) -> Path:
        """Return the file of `state_of`, which may not exist."""
        return Path(f"{self.prefix}.state.json")


def checkpoints(directory: Path) -> list[Checkpoint]:
    """Return the complete checkpoints of a directory, oldest first; empty if the directory does not exist."""
    try:
        matches = [(path, _FILE_NAME.fullmatch(path.name)) for path in directory.glob("model.ckpt-*.index")]
    except FileNotFoundError:
        # The directory was removed while it was listed; `glob` finds nothing in one that was removed earlier.
        return []
    return sorted(Checkpoint(int(match[2]), path.with_suffix("")) for path, match in matches if match)


def save(
    directory: Path,
    step: int,
    variables: Mapping[str, Variable | np.ndarray],
    vocab_size: int | None = None,
    state: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Write a checkpoint; after a kill or power failure at any moment, the other checkpoints stay usable.

    Incomplete files of an earlier save or removal are deleted. Of several machines that train together, only the chief
    may call this.

    Args:
        directory: directory of the checkpoints; created if needed.
        step: number of completed steps, saved as the int64 scalar `global_step` unless `variables` contains it. An
            existing checkpoint of this step is replaced, and missing in the meantime.
        variables: variables, or their values, by their names in the checkpoint.
        vocab_size: number of rows to save of variables with a row per token, and of their slots; None for all rows.
        state: the run's other state, with JSON types; None for none.

    Raises:
        StorageError: the checkpoint cannot be written.
    """
    final = Checkpoint.of_step(directory, step)
    unfinished = directory / _UNFINISHED
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(directory)
        unfinished.mkdir()
        _write(Checkpoint(step, unfinished / final.prefix.name), variables, vocab_size, state)
        _remove(final)
        # There are several files; the index is moved last, when the files it refers to are in place.
        for path in sorted(unfinished.iterdir(), key=lambda path: path.suffix == ".index"):
            if path.suffix == ".index":
                synchronize(directory)
            path.replace(directory / path.name)
        synchronize(directory)
        unfinished.rmdir()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            vanished = next((path for path in (directory.parent, directory) if not path.is_dir()), unfinished)
            raise StorageError(
                f"{vanished} was removed, moved or replaced while the command ran; run the same command again"
            ) from error
        # An incomplete checkpoint would take space that the run's other files need.
        shutil.rmtree(unfinished, ignore_errors=True)
        is_full = file_errors.errno_of(error) in (errno.ENOSPC, errno.EDQUOT)
        free = f", and {_free_bytes(directory):,} are free" if is_full else ""
        raise StorageError(
            f"checkpoint {final.prefix} cannot be written ({file_errors.reason_of(error)}); it needs "
            f"{bytes_needed(variables, vocab_size):,} bytes{free}; {file_errors.remedy_of(error)}: "
            f"{_resume_step(directory)}"
        ) from error
    return final


class _TimedState(TypedDict, total=False):
    """The fields of a state that checkpoint retention reads."""

    seconds: NonNegative


def state_of(checkpoint: Checkpoint, schema: Any = _TimedState) -> dict[str, Any]:
    """Return the state saved with a checkpoint; empty if the file does not exist.

    Args:
        checkpoint: a complete checkpoint.
        schema: TypedDict that the state must match.

    Raises:
        TrainingError: the state cannot be read.
    """
    try:
        content = read(checkpoint.state_file, dict[str, Any])
        require(content, schema)
    except FileNotFoundError:
        return {}
    except JsonError as error:
        raise TrainingError(
            f"{checkpoint.state_file}: {error}; remove {checkpoint.index_file} to resume from the previous checkpoint"
        ) from error
    return content


def bytes_needed(variables: Mapping[str, Variable | np.ndarray], vocab_size: int | None = None) -> int:
    """Return the size of a checkpoint's tensors on disk in bytes, without the small index and state files."""
    total = 0 if GLOBAL_STEP in variables else np.dtype(np.int64).itemsize
    for name, variable in variables.items():
        rows, *other_sizes = list(variable.shape) or [1]
        if vocab_size is not None and is_padded(name):
            rows = vocab_size
        dtype = getattr(variable.dtype, "name", variable.dtype)
        total += rows * math.prod(other_sizes) * numpy_dtype(str(dtype)).itemsize
    return total


def space_warning(
    directory: Path, variables: Mapping[str, Variable], vocab_size: int | None, config: TrainingOptions
) -> str | None:
    """Return a warning if the disk has no space for the recent checkpoints that a run keeps, otherwise None.

    While a checkpoint is saved, all earlier ones to keep still exist. The best and the hourly checkpoints are not
    included.
    """
    more = max(1, config.keep_checkpoint_max + 1 - len(checkpoints(directory)))
    needed, free = more * bytes_needed(variables, vocab_size), _free_bytes(directory)
    if needed <= free:
        return None
    return (
        f"{directory} needs space for up to {more} more checkpoints of {needed // more:,} bytes, and {free:,} "
        "bytes are "
        "free; free some space, or decrease --keep_checkpoint_max"
    )


def remove_old(directory: Path, config: TrainingOptions, best_step: int | None) -> None:
    """Remove the checkpoints that the options do not keep: the last ones, hourly ones, and the start of a decay.

    Hours are hours of training, from `seconds` in the state of a checkpoint. A checkpoint without `seconds` is not kept
    as an hourly one.

    Args:
        directory: directory of the checkpoints.
        config: options of checkpoint retention.
        best_step: step of the best checkpoint, which is kept; None without one.

    Raises:
        StorageError: a checkpoint cannot be removed.
    """
    saved = checkpoints(directory)
    hours_begun: set[float] = set()
    for checkpoint in saved[: -config.keep_checkpoint_max]:
        first_of_its_hours = False
        if config.keep_checkpoint_every_n_hours is not None:
            hours = _seconds_trained(checkpoint) // (3600 * config.keep_checkpoint_every_n_hours)
            # The number is infinite for the shortest intervals, which every checkpoint begins.
            first_of_its_hours = (hours > 0 and hours not in hours_begun) or math.isinf(hours)
            hours_begun.add(hours)
        if checkpoint.step in (best_step, config.decay_start) or first_of_its_hours:
            continue
        try:
            _remove(checkpoint)
        except OSError as error:
            raise StorageError(
                f"old checkpoint {checkpoint.prefix} cannot be removed ({file_errors.reason_of(error)}); make "
                f"{directory} writable and run the same command again"
            ) from error


def restore(prefix: Path, variables: Mapping[str, Variable], vocab_size: int | None = None) -> None:
    """Assign the values of a checkpoint to variables.

    Args:
        prefix: path of the checkpoint without `.index`.
        variables: variables by their names in the checkpoint, which may contain others.
        vocab_size: number of rows in the checkpoint of variables with a row per token, and of their slots; further rows
            get the initial value of the slot, and zeros in variables. None for all rows.

    Raises:
        TrainingError: the checkpoint cannot be read, lacks a variable or has it with another shape.
    """
    try:
        stored = tensor_bundle.read(prefix)
        for name, variable in variables.items():
            if name not in stored:
                raise TrainingError(f"checkpoint {prefix} has no variable {name}; give a checkpoint of the same model")
            needed = list(variable.shape)
            if vocab_size is not None and is_padded(name):
                needed[0] = vocab_size
            if list(stored[name].shape) != needed:
                raise TrainingError(
                    f"checkpoint {prefix} has {name} with shape {list(stored[name].shape)}, but the model requires "
                    f"{needed}; give the --model and vocabulary of the checkpoint"
                )
            variable.assign(with_padding(name, stored[name].read(), list(variable.shape), initial_value(name)))
    except tensor_bundle.BundleError as error:
        raise TrainingError(
            f"checkpoint {prefix} cannot be read ({error}); remove {prefix}.index to resume from the previous "
            "checkpoint"
        ) from error


def _write(
    checkpoint: Checkpoint,
    variables: Mapping[str, Variable | np.ndarray],
    vocab_size: int | None,
    state: Mapping[str, Any] | None,
) -> None:
    """Write the files of a checkpoint, and flush them to the disk."""

    def values() -> Iterator[tuple[str, np.ndarray]]:
        for name, variable in sorted({GLOBAL_STEP: np.array(checkpoint.step, np.int64), **variables}.items()):
            value = variable if isinstance(variable, np.ndarray) else variable.numpy()
            yield name, without_padding(name, value, vocab_size)

    tensor_bundle.write(checkpoint.prefix, values())
    if state is not None:
        checkpoint.state_file.write_text(json.dumps(state), encoding="utf-8")
    for path in checkpoint.prefix.parent.iterdir():
        synchronize(path)


def _remove(checkpoint: Checkpoint) -> None:
    """Remove the files of a checkpoint, the index first."""
    if checkpoint.index_file.exists():
        checkpoint.index_file.unlink()
        synchronize(checkpoint.index_file.parent)
    for path in checkpoint.prefix.parent.glob(f"{checkpoint.prefix.name}.*"):
        if _FILE_NAME.fullmatch(path.name):
            path.unlink()


def _remove_leftovers(directory: Path) -> None:
    """Remove the files of a killed save, and files of checkpoints without an index."""
    if (directory / _UNFINISHED).exists():
        shutil.rmtree(directory / _UNFINISHED)
    for path in directory.iterdir():
        match = _FILE_NAME.fullmatch(path.name)
        if match and not (directory / f"{match[1]}.index").exists():
            path.unlink()


def _seconds_trained(checkpoint: Checkpoint) -> float:
    try:
        return float(state_of(checkpoint).get("seconds", 0.0))
    except TrainingError:
        # An unreadable old checkpoint must not stop training.
        return 0.0


def _free_bytes(directory: Path) -> int:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return shutil.disk_usage(existing).free


def _resume_step(directory: Path) -> str:
    saved = checkpoints(directory)
    return f"it resumes from {saved[-1].prefix}" if saved else "it starts from the beginning"


class BestCheckpoint(NamedTuple):
    """The content of `best.json`.

    Attributes:
        step: step of the best checkpoint.
        metric: name of the metric that selected it.
        value: value of the metric.
    """

    step: int
    metric: str
    value: float


class _BestFields(TypedDict):
    step: Count
    metric: NonEmpty
    value: Number


def lower_is_better(metric: str) -> bool:
    """Return whether lower values of a metric are better, by the last word of its name.

    Raises:
        TrainingError: the name ends with none of the known words.
    """
    for words, lower in ((LOWER_IS_BETTER, True), (HIGHER_IS_BETTER, False)):
        if any(f"_{metric}".endswith(f"_{word}") for word in words):
            return lower
    raise TrainingError(
        f"invalid --best_metric {metric}: must end with one of {', '.join(LOWER_IS_BETTER + HIGHER_IS_BETTER)}"
    )


def best(directory: Path) -> BestCheckpoint | None:
    """Return the best checkpoint recorded in a directory; None without a record or without its checkpoint.

    Raises:
        TrainingError: the record cannot be read.
    """
    path = directory / BEST_FILE_NAME
    try:
        content = read(path, _BestFields)
    except FileNotFoundError:
        return None
    except JsonError as error:
        raise TrainingError(f"{path}: {error}; remove it, and the next evaluation writes it again") from error
    record = BestCheckpoint(content["step"], content["metric"], float(content["value"]))
    return record if Checkpoint.of_step(directory, record.step).index_file.exists() else None


def record_if_improved(directory: Path, step: int, metric: str, value: float, data_step: int = 0) -> bool:
    """Record a checkpoint as the best if its evaluation improved; of equal values, the first one is kept.

    Args:
        directory: directory of the checkpoints, including the one of `step`.
        step: step of the evaluated checkpoint.
        metric: name of the metric. A record of another metric is replaced.
        value: value of the metric; a non-finite value is never the best.
        data_step: first step of training on the data of the evaluation. A record of this step or before is of other
            data, and is replaced.

    Returns:
        Whether the checkpoint is now the best one.

    Raises:
        TrainingError: the direction of the metric is unknown, or the record cannot be read.
        FileError: the record cannot be written.
    """
    lower = lower_is_better(metric)
    if not math.isfinite(value):
        return False
    before = best(directory)
    is_comparable = before is not None and before.metric == metric and (before.step > data_step or not data_step)
    if before is not None and is_comparable and before.step != step:
        improved = value < before.value if lower else value > before.value
        if not improved:
            return False
    content = json.dumps(BestCheckpoint(step, metric, value)._asdict(), indent=2) + "\n"
    write_atomic(directory / BEST_FILE_NAME, content.encode())
    return True
