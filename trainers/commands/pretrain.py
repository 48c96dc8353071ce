"""Define `beambert pretrain`, which pretrains BERT on the shards of `beambert build`.

TensorFlow is imported after the flags are checked, so that `--help` and errors return at once.
"""

import argparse
import time
from collections.abc import Callable

from beambert.common.command_line import options
from beambert.trainers.errors import TrainingError
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


def run(config: PretrainOptions, clock: Callable[[], float] = time.monotonic) -> int:
    """Train and evaluate.

    Args:
        config: configuration of the command.
        clock: monotonic clock in seconds, for the time budget and the monitor.

    Returns:
        0 on completion; 130 or 143 if stopped by Ctrl-C or SIGTERM, after saving a checkpoint.

    Raises:
        CheckpointError, ConfigError, DatasetError, OutputError, TrainingError, VocabularyError: a one-line message.
    """
    from beambert.trainers.backends.startup import start_backend
    from beambert.trainers.pretraining.plan import open_plan
    from beambert.trainers.training_plan import open_output

    begin = clock()
    if config.max_train_time is not None and config.num_train_steps is not None:
        raise TrainingError(
            f"invalid --max_train_time with --num_train_steps {config.num_train_steps}: the time determines the number "
            "of steps; omit one of them"
        )
    with open_output(config, "pretrain") as opened, open_plan(opened, begin, clock) as plan:
        start_backend(opened.backend, opened.cpu_devices, opened.deterministic_ops, opened.processes)
        from beambert.trainers.pretraining.pretraining_run import PretrainingRun
        from beambert.trainers.training_run import start

        return start(PretrainingRun, plan)
