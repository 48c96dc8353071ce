"""`beambert finetune TASK`: trains a pretrained BERT on a task, scores it and writes its answers.

TensorFlow is imported after the options and the files have been checked, so that mistakes answer at once.
"""

import argparse

from trainers.config.finetune_config import FinetuneConfig
from trainers.finetuning.finetune_flags import add_arguments
from trainers.finetuning.prepare import run_once

DESCRIPTION = (
    "Trains a pretrained BERT on a task, from the files as they are published, scores it and writes its answers. "
    "Stopped at any moment, the same command resumes from the last checkpoint."
)
EXAMPLE = "beambert finetune mrpc --data_dir MRPC --init_checkpoint run --output mrpc"
COMMON_FLAGS = (
    "--output",
    "--init_checkpoint",
    "--data_dir",
    "--learning_rate",
    "--num_train_epochs",
    "--train_batch_size",
)
__all__ = ["COMMON_FLAGS", "DESCRIPTION", "EXAMPLE", "add_arguments", "configure", "run"]


def configure(args: argparse.Namespace) -> FinetuneConfig:
    """Return what the flags ask for. Raises TrainingError for flags that contradict each other."""
    return FinetuneConfig.from_args(args)


def run(config: FinetuneConfig) -> int:
    """Train, evaluate and predict, with one seed or several.

    Args:
        config: what to do.

    Returns:
        0 when done; 130 or 143 when stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, OutputError, TaskDataError, TrainingError, VocabularyError: one line for the user.
    """
    if config.seeds > 1:
        from trainers.finetuning.sweep import run_seeds

        return run_seeds(config)
    return run_once(config)
