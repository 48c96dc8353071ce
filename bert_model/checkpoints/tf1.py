"""Name-based TensorFlow checkpoints, as the released code and `beambert pretrain` write them.

A checkpoint is `PREFIX.index` and `PREFIX.data-00000-of-00001`. Only functions that need TensorFlow import it, so that
other formats do not depend on it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beambert_common import file_errors
from bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor

_STEP = re.compile(r"-(\d+)$")


def find(directory: Path) -> Path | None:
    """Return the prefix of a directory's checkpoint: that of the highest step, or one without a step.

    Return None where there is no checkpoint. Of several without a step, `bert_model.ckpt` takes precedence.
    """
    prefixes = [path.with_suffix("") for path in directory.glob("*.ckpt*.index")]

    def rank(prefix: Path) -> tuple[int, bool, str]:
        step = _STEP.search(prefix.name)
        return (int(step[1]) if step else -1, prefix.name == "bert_model.ckpt", prefix.name)

    return max(prefixes, key=rank, default=None)


def read(prefix: Path) -> dict[str, StoredTensor]:
    """Return all variables of a checkpoint, sorted by name.

    Raises:
        CheckpointError: the checkpoint is missing or corrupt, or object-based.
    """
    import tensorflow as tf

    reader = _guarded(prefix, lambda: tf.train.load_checkpoint(str(prefix)))
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in shapes:
        raise CheckpointError(
            f"{prefix} is an object-based TensorFlow 2 checkpoint; use a name-based checkpoint, such as those of the "
            "released BERT"
        )

    def tensor(name: str) -> StoredTensor:
        def value() -> np.ndarray:
            return _guarded(prefix, lambda: np.asarray(reader.get_tensor(name)))

        return StoredTensor(tuple(shapes[name]), dtypes[name].name, value)

    return {name: tensor(name) for name in sorted(shapes)}


def write(prefix: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Write a checkpoint; tensors keep their bytes and dtypes.

    Args:
        prefix: path without `.index`, in an existing directory.
        tensors: tensors by name.

    Raises:
        CheckpointError: a tensor cannot be read, or the files cannot be written.
    """
    import tensorflow as tf

    names = sorted(tensors)
    values = [tf.constant(tensors[name].read()) for name in names]
    try:
        tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    except tf.errors.OpError as error:
        raise CheckpointError(file_errors.write_line(prefix, error)) from error


def _guarded(prefix: Path, action: Callable[[], Any]) -> Any:
    import tensorflow as tf

    try:
        return action()
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {prefix} cannot be read ({_first_line(error)}); it is corrupt or incomplete, copy it again"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
