"""Checkpoints: variables under their TF1 names, in the format that the released BERT's own checkpoints have.

`model.ckpt-<step>.index` and `.data-00000-of-00001` hold every weight, `<name>/adam_m`, `<name>/adam_v` and
global_step, readable by `tf.train.load_checkpoint`; `.state.json` holds what else a run resumes from. The index is put
in place last and removed first: a checkpoint is whole if and only if its index is there.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import tensorflow as tf

from beambert_common import file_errors
from beambert_common.atomic_files import synchronize
from beambert_common.renamed_fields import with_new_names, with_old_names
from beambert_common.typed_json import JsonError, NonNegative, read, require
from bert_model.vocabulary_padding import is_padded, with_padding, without_padding
from trainers.errors import StorageError, TrainingError

GLOBAL_STEP = "global_step"

_FILE_NAME = re.compile(r"(model\.ckpt-(\d+))\.(index|data-\d{5}-of-\d{5}|state\.json)")
_UNFINISHED = ".unfinished"
# Fields of `.state.json` that older files, which have no version, name differently.
_RENAMED_STATE = {"skipped_updates": "skipped_steps", "sums": "metric_sums"}


class Checkpoint(NamedTuple):
    """A complete checkpoint: the step it was saved after, and its path without `.index`."""

    step: int
    prefix: Path

    @property
    def index_file(self) -> Path:
        """Return the file whose presence makes the checkpoint complete."""
        return Path(f"{self.prefix}.index")

    @property
    def state_file(self) -> Path:
        """Return the file of `state_of`, which may be missing."""
        return Path(f"{self.prefix}.state.json")


class RetentionPolicy(NamedTuple):
    """The rule for which checkpoints are kept.

    Attributes:
        last: number of the newest, 0 for all.
        every_hours: beside them, the first one after each such number of hours of training; None for none.
    """

    last: int = 5
    every_hours: float | None = None


def checkpoints(directory: Path) -> list[Checkpoint]:
    """Return the complete checkpoints of a directory, oldest first; empty if there is no such directory."""
    matches = [(path, _FILE_NAME.fullmatch(path.name)) for path in directory.glob("model.ckpt-*.index")]
    return sorted(Checkpoint(int(match[2]), path.with_suffix("")) for path, match in matches if match)


def save(
    directory: Path,
    step: int,
    variables: Mapping[str, tf.Variable],
    vocab_size: int | None = None,
    state: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Write a checkpoint; killed at any moment, also by a power failure, it leaves those of other steps usable.

    The remains of an earlier save or removal that was killed are removed. Of several hosts that train together,
    one alone may call this.

    Args:
        directory: made if need be.
        step: number of steps made so far. If it was saved before, that checkpoint is lost until this one is whole.
        variables: by the name each is saved under.
        vocab_size: rows to save of variables with a row for every token, and of their slots; None for all.
        state: what else the run resumes from, of JSON's types; None for nothing.

    Raises:
        StorageError: the checkpoint cannot be written.
    """
    final = Checkpoint(step, directory / f"model.ckpt-{step}")
    unfinished = directory / _UNFINISHED
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(directory)
        unfinished.mkdir()
        _write(Checkpoint(step, unfinished / final.prefix.name), variables, vocab_size, state)
        _remove(final)
        # Several files of one checkpoint, written by TensorFlow: the index last, when all that it names is there.
        for path in sorted(unfinished.iterdir(), key=lambda path: path.suffix == ".index"):
            if path.suffix == ".index":
                synchronize(directory)
            path.replace(directory / path.name)
        synchronize(directory)
        unfinished.rmdir()
    except (OSError, tf.errors.OpError) as error:
        if isinstance(error, FileNotFoundError | tf.errors.NotFoundError):
            vanished = next((path for path in (directory.parent, directory) if not path.is_dir()), unfinished)
            raise StorageError(
                f"{vanished} was removed, moved or replaced while the command ran; run the same command again"
            ) from error
        # Space that a part of a checkpoint takes would be missed by the run's other files.
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StorageError(
            f"checkpoint {final.prefix} cannot be written ({file_errors.reason_of(error)}); it takes "
            f"{bytes_needed(variables, vocab_size):,} bytes, {_free_bytes(directory):,} are free there; free some "
            f"space, or make the directory writable, and start again: {_resume_step(directory)}"
        ) from error
    return final


class _TimedState(TypedDict, total=False):
    """The part of a state that retention reads."""

    seconds: NonNegative


def state_of(checkpoint: Checkpoint, schema: Any = _TimedState) -> dict[str, Any]:
    """Return the state saved with a checkpoint; empty if there is none.

    Args:
        checkpoint: whole.
        schema: a TypedDict that it must fit.

    Raises:
        TrainingError: it cannot be read.
    """
    names: dict[str, str] = {}
    try:
        content = read(checkpoint.state_file, dict[str, Any])
        names = {old: new for old, new in _RENAMED_STATE.items() if old in content}
        content = with_new_names(content, names)
        require(content, schema)
    except FileNotFoundError:
        return {}
    except JsonError as error:
        raise TrainingError(
            f"{checkpoint.state_file}: {with_old_names(str(error), names)}; remove {checkpoint.index_file} to go back "
            "to the checkpoint before it"
        ) from error
    return content


def bytes_needed(variables: Mapping[str, tf.Variable], vocab_size: int | None = None) -> int:
    """Return the bytes that one checkpoint's tensors take on the disk; index and state are small beside them."""
    total = 0
    for name, variable in variables.items():
        rows, *other_sizes = variable.shape.as_list() or [1]
        if vocab_size is not None and is_padded(name):
            rows = vocab_size
        for size in other_sizes:
            rows *= size
        total += rows * variable.dtype.size
    return total


def space_warning(
    directory: Path, variables: Mapping[str, tf.Variable], vocab_size: int | None, retention: RetentionPolicy
) -> str | None:
    """Return a line if the disk has no room for the newest checkpoints that a run keeps, None if it has.

    While one more is saved, all those to be kept are still there. The best and the hourly ones are not reckoned with.
    """
    more = max(1, retention.last + 1 - len(checkpoints(directory)))
    needed, free = more * bytes_needed(variables, vocab_size), _free_bytes(directory)
    if needed <= free:
        return None
    return (
        f"{directory} is to take up to {more} more checkpoints of {needed // more:,} bytes and has {free:,} bytes "
        "free; free some space, or keep fewer with --keep_checkpoint_max"
    )


def remove_old(directory: Path, retention: RetentionPolicy, best_step: int | None) -> None:
    """Remove the checkpoints that the policy does not retain.

    Hours are those trained, `seconds` in a checkpoint's state, whatever the clock said; a checkpoint without them is
    none of the hourly ones.

    Args:
        directory: of the checkpoints.
        keeping: which stay.
        best_step: of the best checkpoint, which stays too; None if there is none.

    Raises:
        StorageError: a checkpoint cannot be removed.
    """
    saved = checkpoints(directory)
    if not retention.last:
        return
    hours_begun: set[int] = set()
    for checkpoint in saved[: -retention.last]:
        first_of_its_hours = False
        if retention.every_hours is not None:
            passed = int(_seconds_trained(checkpoint) // (3600 * retention.every_hours))
            first_of_its_hours = passed > 0 and passed not in hours_begun
            hours_begun.add(passed)
        if checkpoint.step == best_step or first_of_its_hours:
            continue
        try:
            _remove(checkpoint)
        except OSError as error:
            raise StorageError(
                f"old checkpoint {checkpoint.prefix} cannot be removed ({file_errors.reason_of(error)}); make "
                f"{directory} writable and start again"
            ) from error


def restore(prefix: Path, variables: Mapping[str, tf.Variable], vocab_size: int | None = None) -> None:
    """Assign the values of a checkpoint.

    Args:
        prefix: path of the checkpoint without `.index`.
        variables: by the name each was saved under; the checkpoint may hold more.
        vocab_size: rows that the checkpoint has of variables with a row for every token, and of their slots, the rest
            being filled with zeros; None for all.

    Raises:
        TrainingError: the checkpoint cannot be read, lacks a variable or has it in another shape.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        for name, variable in variables.items():
            if name not in shapes:
                raise TrainingError(f"checkpoint {prefix} has no variable {name}; give a checkpoint of the same model")
            needed = list(variable.shape)
            if vocab_size is not None and is_padded(name):
                needed[0] = vocab_size
            if shapes[name] != needed:
                raise TrainingError(
                    f"checkpoint {prefix} has {name} of shape {shapes[name]}, the model needs {needed}; give the "
                    "--model and vocabulary that the checkpoint was made with"
                )
            variable.assign(with_padding(name, reader.get_tensor(name), list(variable.shape)))
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
        raise TrainingError(
            f"checkpoint {prefix} cannot be read ({_first_line(error)}); remove {prefix}.index to go back to the one "
            "before it"
        ) from error


def _write(
    checkpoint: Checkpoint,
    variables: Mapping[str, tf.Variable],
    vocab_size: int | None,
    state: Mapping[str, Any] | None,
) -> None:
    names = sorted(variables)
    tf.raw_ops.SaveV2(
        prefix=str(checkpoint.prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[without_padding(name, variables[name].read_value(), vocab_size) for name in names],
    )
    if state is not None:
        checkpoint.state_file.write_text(json.dumps(state), encoding="utf-8")
    for path in checkpoint.prefix.parent.iterdir():
        synchronize(path)


def _remove(checkpoint: Checkpoint) -> None:
    """Remove a checkpoint's remaining files, the index first."""
    if checkpoint.index_file.exists():
        checkpoint.index_file.unlink()
        synchronize(checkpoint.index_file.parent)
    for path in checkpoint.prefix.parent.glob(f"{checkpoint.prefix.name}.*"):
        if _FILE_NAME.fullmatch(path.name):
            path.unlink()


def _remove_leftovers(directory: Path) -> None:
    """Remove the files of a killed save, and files of checkpoints whose index is missing."""
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
        # Training need not stop because of an old checkpoint that is not read.
        return 0.0


def _free_bytes(directory: Path) -> int:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return shutil.disk_usage(existing).free


def _resume_step(directory: Path) -> str:
    whole = checkpoints(directory)
    return f"the same command resumes from {whole[-1].prefix}" if whole else "no checkpoint had been saved before"


def _first_line(error: Exception) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    # TensorFlow says which of its operations failed, where; the file and the reason stand between.
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", line)
