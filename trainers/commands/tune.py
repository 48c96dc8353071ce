"""Define `beambert tune TASK`, the grid search of the BERT paper (appendix A.3)."""

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from beambert.common.command_line import options
from beambert.common.command_line.options import BatchSize, Flag, PositiveFloat, number_type
from beambert.trainers.commands import finetune
from beambert.trainers.commands.finetune import GROUPS, TASK
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.options import FinetuneOptions

DESCRIPTION = """Search batch size, learning rate and number of epochs for fine-tuning, and report the best run.

Every combination is fine-tuned and evaluated on the dev split; the default grid is the BERT paper's, 18 runs. Run the
same command again to resume an interrupted search."""
EXAMPLE = """beambert tune mrpc --data_dir MRPC --init_checkpoint run --output mrpc-search
beambert tune csv --data_dir reviews --init_checkpoint run --output search --learning_rates 5e-5,2e-5 --epochs 3"""
COMMON_FLAGS = (
    "--data_dir",
    "--init_checkpoint",
    "--output",
    "--train_batch_sizes",
    "--learning_rates",
    "--epochs",
    "--max_seq_length",
    "--best_metric",
)
_SET_BY_GRID = ("train_batch_size", "learning_rate", "num_train_epochs", "seeds", "do_train", "do_eval")


def _comma_separated(kind: Any) -> Callable[[str], tuple[Any, ...]]:
    """Return the type of a flag with comma-separated numbers of a type."""
    parse = number_type(kind)

    def values(text: str) -> tuple[Any, ...]:
        return tuple(parse(part) for part in text.split(","))

    return values


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The options of `beambert tune`: the grid, by default the BERT paper's, and what all its runs have in common.

    Attributes:
        finetuning: options of each run, apart from the values of the grid.
        train_batch_sizes: Global training batch sizes to try, in examples (default: 16,32).
        learning_rates: Peak learning rates to try (default: 5e-5,3e-5,2e-5).
        epochs: Numbers of training epochs to try (default: 2,3,4).

    Raises:
        TrainingError: a value is out of range.
    """

    finetuning: FinetuneOptions
    train_batch_sizes: Annotated[
        tuple[BatchSize, ...], Flag("training", type=_comma_separated(BatchSize), metavar="N,...")
    ] = (16, 32)
    learning_rates: Annotated[
        tuple[PositiveFloat, ...], Flag("training", type=_comma_separated(PositiveFloat), metavar="RATE,...")
    ] = (5e-5, 3e-5, 2e-5)
    epochs: Annotated[
        tuple[PositiveFloat, ...], Flag("training", type=_comma_separated(PositiveFloat), metavar="N,...")
    ] = (2.0, 3.0, 4.0)

    def __post_init__(self) -> None:
        options.check(self, TrainingError)

    def grid(self) -> dict[str, dict[str, Any]]:
        """Return the options that differ between runs, by the name of each run."""
        return {
            f"batch{batch_size}-lr{_exact(rate)}-epochs{_exact(epochs)}": {
                "train_batch_size": batch_size,
                "learning_rate": rate,
                "num_train_epochs": epochs,
            }
            for batch_size, rate, epochs in itertools.product(self.train_batch_sizes, self.learning_rates, self.epochs)
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the grid, and those of `finetune` that the grid does not set."""
    options.add_groups(parser, *GROUPS)
    predict = {"group": "predictions", "help": "Write the predictions of every run for the test split"}
    options.add_arguments(parser, TuneOptions, lambda name: name not in _SET_BY_GRID, task=TASK, do_predict=predict)
    # The checkpoints of all runs are kept.
    parser.set_defaults(keep_checkpoint_max=1)


def configure(args: argparse.Namespace) -> TuneOptions:
    """Return the options of parsed flags. Raises TrainingError for flags that contradict each other."""
    return options.from_args(TuneOptions, args, finetuning=finetune.configure(args))


def run(config: TuneOptions) -> int:
    """Run the grid.

    Returns:
        The exit code of `beambert.trainers.finetuning.sweep.run_several`.

    Raises:
        as `beambert.trainers.commands.finetune.run`.
    """
    from beambert.trainers.finetuning.sweep import run_several

    return run_several(config.finetuning, config.grid())


def _exact(value: float) -> str:
    """Return a number with six digits, or with all digits if six are not enough to restore it."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
