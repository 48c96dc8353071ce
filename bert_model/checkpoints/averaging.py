"""Average the weights of several checkpoints of a training run, as in Izmailov et al. 2018 and Kaddour 2022."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from beambert.bert_model.checkpoints import tf1
from beambert.bert_model.checkpoints.reader import Checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor


def averaged(checkpoint: Checkpoint, prefixes: Sequence[Path], steps: Sequence[int]) -> Checkpoint:
    """Return a checkpoint with the mean weights of several checkpoints of the same run, heads included.

    Sums are float64, results float32. Tensors are read one after the other, when they are needed.

    Args:
        checkpoint: an open native checkpoint.
        prefixes: paths of the checkpoints to average, without `.index`, oldest first.
        steps: their training steps.

    Returns:
        The checkpoint without optimizer state, and with a record without metrics that names the steps.

    Raises:
        CheckpointError: a checkpoint cannot be read, lacks a weight or has it with another shape.
    """
    stored = [tf1.read(prefix) for prefix in prefixes]
    for prefix, tensors in zip(prefixes, stored, strict=True):
        for name, tensor in checkpoint.tensors.items():
            if name not in tensors or tensors[name].shape != tensor.shape:
                raise CheckpointError(
                    f"{prefix} lacks {name} of shape {list(tensor.shape)}; average checkpoints of a single run"
                )
    record = checkpoint.record
    if record is not None:
        names = ", ".join(map(str, steps))
        origin = f"average of the checkpoints at steps {names}"
        origin = origin if record.origin is None else f"{record.origin}; {origin}"
        record = dataclasses.replace(record, steps=steps[-1], metrics={}, origin=origin)
    means = {
        name: _mean([tensors[name] for tensors in stored], tensor.shape) for name, tensor in checkpoint.tensors.items()
    }
    return dataclasses.replace(checkpoint, tensors=means, optimizer={}, record=record)


def _mean(tensors: Sequence[StoredTensor], shape: tuple[int, ...]) -> StoredTensor:
    def read() -> np.ndarray:
        total = np.zeros(shape, np.float64)
        for tensor in tensors:
            total += tensor.read()
        return (total / len(tensors)).astype(np.float32)

    return StoredTensor(shape, "float32", read)
