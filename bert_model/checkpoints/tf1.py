"""TensorFlow's checkpoints by variable name, as the released code and `beambert pretrain` write them.

`PREFIX.index` and `PREFIX.data-00000-of-00001`. TensorFlow is imported by the functions that need it, so that the
other formats are read without.
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
    """Return a directory's checkpoint, without `.index`: that of the highest step, or the one without a step.

    None if there is none. Of several without a step, `bert_model.ckpt`, the released one, comes first.
    """
    prefixes = [path.with_suffix("") for path in directory.glob("*.ckpt*.index")]

    def rank(prefix: Path) -> tuple[int, bool, str]:
        step = _STEP.search(prefix.name)
        return (int(step[1]) if step else -1, prefix.name == "bert_model.ckpt", prefix.name)

    return max(prefixes, key=rank, default=None)


def read(prefix: Path) -> dict[str, StoredTensor]:
    """Return every variable of a checkpoint by its name, sorted.

    Raises:
        CheckpointError: the checkpoint is missing, damaged, or of the kind that names objects instead of variables.
    """
    import tensorflow as tf

    reader = _guarded(prefix, lambda: tf.train.load_checkpoint(str(prefix)))
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in shapes:
        raise CheckpointError(
            f"{prefix} is a TensorFlow 2 checkpoint of objects; give one that was saved by variable name, as the "
            "released BERT's are"
        )

    def tensor(name: str) -> StoredTensor:
        def value() -> np.ndarray:
            return _guarded(prefix, lambda: np.asarray(reader.get_tensor(name)))

        return StoredTensor(tuple(shapes[name]), dtypes[name].name, value)

    return {name: tensor(name) for name in sorted(shapes)}


def write(prefix: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Write a checkpoint; every tensor keeps its bytes and its dtype.

    Args:
        prefix: path without `.index`, in a directory that exists.
        tensors: by the name each is saved under.

    Raises:
        CheckpointError: a tensor cannot be read, or the files not be written.
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
            f"checkpoint {prefix} cannot be read ({_first_line(error)}); it is damaged or incomplete, copy it again"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
