"""Average the last checkpoints of a run (`beambert convert --average`), as in Izmailov et al. 2018 and Kaddour 2022.

This file imports neither Keras nor TensorFlow.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from beambert.bert_model.checkpoints import native, reader, tf1
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.errors import TrainingError
from beambert.trainers.training import run_manifest


def last_checkpoints(run: Path, count: int) -> list[Checkpoint]:
    """Return the last checkpoints of a run, oldest first.

    Args:
        run: output directory of a training run.
        count: number of checkpoints.

    Raises:
        TrainingError: the directory is not a training run, or has fewer checkpoints. The best, the hourly and similar
            checkpoints, which are kept in addition, do not count.
    """
    flag = f"invalid --average {count}"
    record = run_manifest.load(run) if run.is_dir() else None
    if record is None:
        raise TrainingError(
            f"{flag}: {run} is not the output directory of a training run ({run_manifest.FILE_NAME} is missing); give "
            "the --output of beambert pretrain or finetune"
        )
    kept = record.options.get("keep_checkpoint_max")
    if isinstance(kept, int) and kept < count:
        raise TrainingError(
            f"{flag}: {run} was trained with --keep_checkpoint_max {kept}; average at most {kept}, or train with a "
            "higher --keep_checkpoint_max"
        )
    saved = checkpoint_manager.checkpoints(run / native.CHECKPOINTS_NAME)
    if len(saved) < count:
        raise TrainingError(
            f"{flag}: {run / native.CHECKPOINTS_NAME} has {len(saved)} checkpoints; average fewer, or train with a "
            "lower --save_checkpoints_steps"
        )
    return saved[-count:]


def averaged(checkpoint: reader.Checkpoint, saved: Sequence[Checkpoint]) -> reader.Checkpoint:
    """Return a checkpoint with the mean weights of several checkpoints of the same run, heads included.

    Sums are float64, results float32. Tensors are read one after the other, when they are needed.

    Args:
        checkpoint: an open native checkpoint.
        saved: the checkpoints to average, oldest first.

    Returns:
        The checkpoint without optimizer state, and with a record without metrics that names the steps.

    Raises:
        CheckpointError: a checkpoint cannot be read, lacks a weight or has it with another shape.
    """
    stored = [tf1.read(prefix) for _, prefix in saved]
    for (_, prefix), tensors in zip(saved, stored, strict=True):
        for name, tensor in checkpoint.tensors.items():
            if name not in tensors or tensors[name].shape != tensor.shape:
                raise CheckpointError(
                    f"{prefix} lacks {name} of shape {list(tensor.shape)}; average checkpoints of a single run"
                )
    record = checkpoint.record
    if record is not None:
        origin = f"average of the checkpoints at steps {', '.join(str(step) for step, _ in saved)}"
        origin = origin if record.origin is None else f"{record.origin}; {origin}"
        record = dataclasses.replace(record, steps=saved[-1].step, metrics={}, origin=origin)
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
