"""`beambert tune TASK`: the paper's exhaustive search over batch size, learning rate and epochs (appendix A.3)."""

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beambert_common.command_line.flag_config import flag_values
from beambert_common.command_line.flags import batch_size, positive_float
from trainers.config.finetune_config import FinetuneConfig
from trainers.finetuning.finetune_flags import add_shared_arguments, add_task_and_model_arguments

DESCRIPTION = (
    "Fine-tunes with every combination of batch size, learning rate and number of epochs, and shows which is best on "
    "the development examples. Stopped at any moment, the same command continues with what is missing."
)
EXAMPLE = "beambert tune mrpc --data_dir MRPC --init_checkpoint run --output mrpc-grid"
COMMON_FLAGS = ("--output", "--init_checkpoint", "--data_dir")
__all__ = ["COMMON_FLAGS", "DESCRIPTION", "EXAMPLE", "add_arguments", "configure", "run"]


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """What `beambert tune` is configured with: the grid, and all that its runs have in common.

    Attributes:
        finetuning: of each run, but for what the grid says.
        train_batch_sizes, learning_rates, epochs: the values of the grid; defaults are the paper's.
        keep_runs: whether to keep the checkpoints of all runs.
    """

    finetuning: FinetuneConfig
    train_batch_sizes: tuple[int, ...] = (16, 32)
    learning_rates: tuple[float, ...] = (5e-5, 3e-5, 2e-5)
    epochs: tuple[float, ...] = (2.0, 3.0, 4.0)
    keep_runs: bool = False

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "TuneConfig":
        """Return the configuration that parsed flags name. Raises TrainingError as `FinetuneConfig` does."""
        return cls(finetuning=FinetuneConfig.from_args(args), **flag_values(cls, args))

    def grid(self) -> dict[str, dict[str, Any]]:
        """Return the options of each run that it does not share with the others, by the name of the run."""
        return {
            f"batch{batch_size}-lr{rate:g}-epochs{epochs:g}": {
                "train_batch_size": batch_size,
                "learning_rate": rate,
                "num_train_epochs": epochs,
            }
            for batch_size, rate, epochs in itertools.product(self.train_batch_sizes, self.learning_rates, self.epochs)
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tune`: the grid, and those of `finetune` that the grid does not set."""
    parser.usage = "%(prog)s TASK --data_dir DIR --init_checkpoint PATH --output DIR [OPTION ...]"
    add_task_and_model_arguments(parser)
    group = parser.add_argument_group("grid", "the paper's, 18 runs, unless told otherwise")
    group.add_argument(
        "--train_batch_sizes",
        type=_comma_separated(batch_size),
        default=TuneConfig.train_batch_sizes,
        metavar="N,...",
        help="examples an update (default: 16,32)",
    )
    group.add_argument(
        "--learning_rates",
        type=_comma_separated(positive_float),
        default=TuneConfig.learning_rates,
        metavar="RATE,...",
        help="peak learning rates (default: 5e-5,3e-5,2e-5)",
    )
    group.add_argument(
        "--epochs",
        type=_comma_separated(positive_float),
        default=TuneConfig.epochs,
        metavar="N,...",
        help="times that every example is seen (default: 2,3,4)",
    )
    group.add_argument(
        "--keep_runs", action="store_true", help="keep the checkpoints of all runs, not of the best one alone"
    )
    parser.add_argument(
        "--do_predict", action="store_true", help="let every run write its answers for the test examples too"
    )
    add_shared_arguments(parser)


def configure(args: argparse.Namespace) -> TuneConfig:
    """Return what the flags ask for. Raises TrainingError for flags that contradict each other."""
    return TuneConfig.from_args(args)


def run(config: TuneConfig) -> int:
    """Run the grid.

    Returns:
        The exit code, as of `several_runs.run_several`.

    Raises:
        see `finetune.run`.
    """
    from trainers.finetuning.sweep import run_several

    return run_several(config.finetuning, config.grid(), config.keep_runs)


def _comma_separated(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return an argument type of several comma-separated values."""

    def values(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    values.__name__ = "list"
    return values
