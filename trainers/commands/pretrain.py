"""Define `beambert pretrain`, which pretrains BERT on the shards of `beambert build`.

TensorFlow is imported after the flags are checked, so that `--help` and errors return at once.
"""

import argparse

from beambert.common.command_line import options
from beambert.trainers.pretraining.options import PretrainOptions
from beambert.trainers.pretraining.recipes import RECIPES, RecipeAction, summary
from beambert.trainers.pretraining.recipes import with_recipe as complete_arguments

DESCRIPTION = """Pretrain BERT on shards written by `beambert build`.

Training starts from random weights or from a checkpoint, and ends with an evaluation on the validation split. Run the
same command again to resume an interrupted run from its last checkpoint."""
EXAMPLE = """beambert pretrain --data data --output run --num_train_steps 1000
beambert pretrain --recipe paper-base --data data-128 data-512 --output run
beambert pretrain --data data --init_checkpoint uncased_L-12_H-768_A-12.zip --output run"""
COMMON_FLAGS = (
    "--data",
    "--output",
    "--model",
    "--init_checkpoint",
    "--num_train_steps",
    "--learning_rate",
    "--train_batch_size",
    "--eval_steps",
)
__all__ = ["COMMON_FLAGS", "DESCRIPTION", "EXAMPLE", "add_arguments", "complete_arguments", "configure", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags, and the recipes to the end of the help."""
    options.add_groups(parser, "output", "data", "model", "training", "optimizer", "devices", "numerics", "checkpoints")
    options.add_arguments(parser, PretrainOptions, recipe={"choices": RECIPES, "action": RecipeAction})
    parser.epilog = summary()


def configure(args: argparse.Namespace) -> PretrainOptions:
    """Return the options of parsed flags. Raises TrainingError for flags that contradict each other."""
    return options.from_args(PretrainOptions, args)


def run(config: PretrainOptions) -> int:
    """Train and evaluate; return the exit code. See `beambert.trainers.pretraining.prepare.run_pretraining`."""
    from beambert.trainers.pretraining.prepare import run_pretraining

    return run_pretraining(config)
