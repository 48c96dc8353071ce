"""Define `beambert tune TASK`, the grid search of the BERT paper (appendix A.3)."""

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beambert.common.command_line.flags import batch_size, flag_values, positive_float
from beambert.trainers.config.finetune_config import FinetuneConfig
from beambert.trainers.finetuning.finetune_flags import add_shared_arguments, add_task_and_model_arguments

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
__all__ = ["COMMON_FLAGS", "DESCRIPTION", "EXAMPLE", "add_arguments", "configure", "run"]


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """The configuration of `beambert tune`: the grid, and what all its runs have in common.

    Attributes:
        finetuning: configuration of each run, apart from the values of the grid.
        train_batch_sizes, learning_rates, epochs: values of the grid; the defaults are the BERT paper's.
    """

    finetuning: FinetuneConfig
    train_batch_sizes: tuple[int, ...] = (16, 32)
    learning_rates: tuple[float, ...] = (5e-5, 3e-5, 2e-5)
    epochs: tuple[float, ...] = (2.0, 3.0, 4.0)

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "TuneConfig":
        """Return the configuration that parsed flags name. Raises TrainingError as `FinetuneConfig` does."""
        return cls(finetuning=FinetuneConfig.from_args(args), **flag_values(cls, args))

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
    parser.usage = "%(prog)s TASK --data_dir DIR --init_checkpoint PATH --output DIR [OPTION ...]"
    add_task_and_model_arguments(parser)
    group = parser.add_argument_group("training")
    group.add_argument(
        "--train_batch_sizes",
        type=_comma_separated(batch_size),
        default=TuneConfig.train_batch_sizes,
        metavar="N,...",
        help="Global training batch sizes to try, in examples (default: 16,32)",
    )
    group.add_argument(
        "--learning_rates",
        type=_comma_separated(positive_float),
        default=TuneConfig.learning_rates,
        metavar="RATE,...",
        help="Peak learning rates to try (default: 5e-5,3e-5,2e-5)",
    )
    group.add_argument(
        "--epochs",
        type=_comma_separated(positive_float),
        default=TuneConfig.epochs,
        metavar="N,...",
        help="Numbers of training epochs to try (default: 2,3,4)",
    )
    parser.add_argument_group("predictions").add_argument(
        "--do_predict", action="store_true", help="Write the predictions of every run for the test split"
    )
    add_shared_arguments(parser)
    # The checkpoints of all runs are kept.
    parser.set_defaults(keep_checkpoint_max=1)


def configure(args: argparse.Namespace) -> TuneConfig:
    """Return the configuration of parsed flags. Raises TrainingError for flags that contradict each other."""
    return TuneConfig.from_args(args)


def run(config: TuneConfig) -> int:
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


def _comma_separated(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return the type of a flag with comma-separated values."""

    def values(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    values.__name__ = "list"
    return values
