"""Checkpoints: variables under their TF1 names, in the format that the released BERT's own checkpoints have.

`model.ckpt-<step>.index` and `.data-00000-of-00001` hold every weight, `<name>/adam_m`, `<name>/adam_v` and
global_step, readable by `tf.train.load_checkpoint`. The index is put in place last: a checkpoint is whole if and only
if its index is there.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from bert_model.vocabulary_padding import is_padded, with_padding, without_padding
from trainers.errors import TrainingError

KEPT = 5
GLOBAL_STEP = "global_step"

_INDEX_NAME = re.compile(r"model\.ckpt-(\d+)\.index")
_UNFINISHED = ".unfinished"


class Checkpoint(NamedTuple):
    """A whole checkpoint: the step it was saved after, and its path without `.index`."""

    step: int
    prefix: Path


def checkpoints(directory: Path) -> list[Checkpoint]:
    """The whole checkpoints of a directory, oldest first; empty if there is no such directory."""
    matches = [(path, _INDEX_NAME.fullmatch(path.name)) for path in directory.glob("model.ckpt-*.index")]
    return sorted(Checkpoint(int(match[1]), path.with_suffix("")) for path, match in matches if match)


def save(directory: Path, step: int, variables: Mapping[str, tf.Variable], vocab_size: int | None = None) -> Checkpoint:
    """Writes a checkpoint and removes all but the last `KEPT`; killed at any moment, it leaves the others usable.

    Args:
        directory: made if need be.
        step: number of updates made so far.
        variables: by the name each is saved under.
        vocab_size: rows to save of variables with a row for every piece, and of their slots; None for all.

    Raises:
        TrainingError: the checkpoint cannot be written.
    """
    final = Checkpoint(step, directory / f"model.ckpt-{step}")
    unfinished = directory / _UNFINISHED
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        names = sorted(variables)
        tf.raw_ops.SaveV2(
            prefix=str(unfinished / final.prefix.name),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[without_padding(name, variables[name].read_value(), vocab_size) for name in names],
        )
        # The step may have been saved before; without its index the old data cannot pass for the new.
        Path(f"{final.prefix}.index").unlink(missing_ok=True)
        for path in sorted(unfinished.iterdir(), key=lambda path: path.suffix == ".index"):
            path.replace(directory / path.name)
        unfinished.rmdir()
        for old in checkpoints(directory)[:-KEPT]:
            _remove(old)
    except (OSError, tf.errors.OpError) as error:
        raise TrainingError(
            f"checkpoint {final.prefix} cannot be written ({_first_line(error)}); free some space and start again"
        ) from error
    return final


def restore(prefix: Path, variables: Mapping[str, tf.Variable], vocab_size: int | None = None) -> None:
    """Assigns the values of a checkpoint.

    Args:
        prefix: path of the checkpoint without `.index`.
        variables: by the name each was saved under; the checkpoint may hold more.
        vocab_size: rows that the checkpoint has of variables with a row for every piece, and of their slots, the rest
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


def _remove(checkpoint: Checkpoint) -> None:
    Path(f"{checkpoint.prefix}.index").unlink()
    for path in checkpoint.prefix.parent.glob(f"{checkpoint.prefix.name}.data-*"):
        path.unlink()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
