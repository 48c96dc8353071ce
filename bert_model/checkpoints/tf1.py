"""TensorFlow checkpoints: name-based, as the released code and `beambert pretrain` write them, and object-based.

A checkpoint is `PREFIX.index` and `PREFIX.data-00000-of-00001`. TensorFlow is not needed: `tensor_bundle.py` reads and
writes the files.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from beambert.bert_model.checkpoints import model_garden, object_graph, tensor_bundle
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
from beambert.common import file_errors

_STEP = re.compile(r"-(\d+)$")
_T = TypeVar("_T")


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
    """Return all variables of a checkpoint; those of the TensorFlow Model Garden by their TF1 names.

    Raises:
        CheckpointError: the checkpoint is missing or corrupt.
    """
    return model_garden.by_tf1_name(read_variables(prefix))


def read_variables(prefix: Path) -> dict[str, StoredTensor]:
    """Return all variables of a checkpoint by the names that TensorFlow gave them, sorted by key.

    Raises:
        CheckpointError: as `read`.
    """
    stored = _guarded(prefix, lambda: tensor_bundle.read(prefix))
    if object_graph.is_object_based(stored):
        stored = _guarded(prefix, lambda: object_graph.by_full_name(prefix, stored))

    def tensor(stored: StoredTensor) -> StoredTensor:
        return stored._replace(read=lambda: _guarded(prefix, stored.read))

    return {name: tensor(variable) for name, variable in stored.items()}


def write(prefix: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Write a checkpoint, one tensor after the other; tensors keep their bytes and dtypes.

    Args:
        prefix: path without `.index`, in an existing directory.
        tensors: tensors by name.

    Raises:
        CheckpointError: a tensor cannot be read, or the files cannot be written.
    """

    def values() -> Iterator[tuple[str, np.ndarray]]:
        for name in sorted(tensors):
            yield name, tensors[name].read()

    try:
        tensor_bundle.write(prefix, values())
    except tensor_bundle.BundleError as error:
        raise CheckpointError(f"{prefix} cannot be written ({error}); convert the weights to float32") from error
    except file_errors.FileError as error:
        raise CheckpointError(str(error)) from error


def _guarded(prefix: Path, action: Callable[[], _T]) -> _T:
    """Return the result of an action that reads a bundle."""
    try:
        return action()
    except tensor_bundle.UnsupportedTensorError as error:
        raise CheckpointError(
            f"checkpoint {prefix} cannot be read ({error}); save it with whole variables of numbers"
        ) from error
    except tensor_bundle.BundleError as error:
        raise CheckpointError(
            f"checkpoint {prefix} cannot be read ({error}); it is corrupt or incomplete, copy it again"
        ) from error
