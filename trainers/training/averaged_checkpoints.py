"""Choose the checkpoints of a run that `beambert convert --average` averages.

This file imports neither Keras nor TensorFlow.
"""

from pathlib import Path

from beambert.bert_model.checkpoints import native
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
