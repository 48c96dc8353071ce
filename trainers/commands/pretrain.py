"""`beambert pretrain`: trains a BERT, from random weights or a checkpoint, on the shards of `beambert build`.

TensorFlow is imported after the options have been checked, so that `--help` and mistakes answer at once.
"""

import argparse

from trainers.config.pretrain_config import PretrainConfig
from trainers.pretraining.prepare import run_pretraining
from trainers.pretraining.pretrain_flags import (
    add_arguments,
)
from trainers.pretraining.recipes import with_recipe as complete_arguments

DESCRIPTION = (
    "Trains a BERT, from random weights or a checkpoint, on the data that `beambert build` made, and evaluates it. "
    "Stopped at any moment, the same command resumes from the last checkpoint."
)
EXAMPLE = "beambert pretrain --data data --output run --model tiny --num_train_steps 1000"
COMMON_FLAGS = (
    "--data",
    "--output",
    "--model",
    "--num_train_steps",
    "--train_batch_size",
    "--learning_rate",
    "--init_checkpoint",
    "--recipe",
)
__all__ = ["COMMON_FLAGS", "DESCRIPTION", "EXAMPLE", "add_arguments", "complete_arguments", "configure", "run"]


def configure(args: argparse.Namespace) -> PretrainConfig:
    """Return what the flags ask for. Raises TrainingError for flags that contradict each other."""
    return PretrainConfig.from_args(args)


def run(config: PretrainConfig) -> int:
    """Train and evaluate.

    Args:
        config: what to do.

    Returns:
        The exit code, as of `trainers.pretraining.prepare.run_pretraining`.

    Raises:
        as of `run_pretraining`.
    """
    return run_pretraining(config)
