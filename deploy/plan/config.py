"""The configuration of `beambert plan`: options of the build, of the pretraining run and of the cost model."""

import argparse
import dataclasses
import math
from dataclasses import dataclass

from beambert.common.command_line.flags import FlagConfig, flag_values
from beambert.common.command_line.options import from_args
from beambert.deploy.plan.data import CPU_FACTOR
from beambert.deploy.plan.text_estimate import WIKIPEDIA_DOCUMENT_BYTES
from beambert.deploy.plan.tpu_compiler.compiler_process import CompilerTarget, target_of
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.config.pretrain_config import PretrainConfig
from beambert.trainers.optimization.schedule import scheduled_lengths

_MASKED_LM_PROB = 0.15


@dataclass(frozen=True, kw_only=True)
class PlanConfig(FlagConfig):
    """Options of `beambert plan`; the help of each flag describes its field.

    None stands for an option without a fixed default that was not given.

    Attributes:
        examples: options of `beambert build`.
        training: options of `beambert pretrain`, without directories.
    """

    corpus_bytes: float | None = None
    words: float | None = None
    input: tuple[str, ...] | None = None
    document_bytes: float = WIKIPEDIA_DOCUMENT_BYTES
    input_format: str = "auto"
    text_field: str = "text"
    language: str = "en"

    vocab_size: int | None = None
    vocab_file: str | None = None
    num_partitions: int | None = None
    validation_fraction: float = 0.02
    max_predictions_per_seq: int | None = None
    examples: PretrainingDataOptions
    workers: int | None = None
    cpu_factor: float = CPU_FACTOR

    training: PretrainConfig
    accelerator: str | None = None
    num_accelerators: int = 1
    mfu: float | None = None
    price_per_hour: float | None = None
    compile: str | None = None
    no_step_time: bool = False

    json: bool = False

    def __post_init__(self) -> None:
        """Check the options against each other.

        Raises:
            SubmitError: not exactly one of the three sizes of the text is set, both vocabulary options are,
                predictions are limited with a schedule, or the accelerator is not the compiled slice.
        """
        if self.validation_fraction == 1:
            raise SubmitError("invalid --validation_fraction 1: must be below 1, since training needs documents")
        if sum(map(bool, (self.corpus_bytes, self.words, self.input))) != 1:
            raise SubmitError("give exactly one of --corpus_bytes, --words and --input, such as --corpus_bytes 20e9")
        if self.vocab_file is not None and self.vocab_size:
            raise SubmitError("--vocab_size and --vocab_file are mutually exclusive: drop --vocab_size")
        if self.max_predictions_per_seq is not None and self.training.schedule is not None:
            raise SubmitError(
                "--max_predictions_per_seq and --schedule are mutually exclusive: drop --max_predictions_per_seq, "
                f"which is then {_MASKED_LM_PROB:.0%} of each sequence length"
            )
        if self.no_step_time and self.compile is None:
            raise SubmitError("invalid --no_step_time without --compile: drop --no_step_time")
        target = self.compiler_target
        if target is not None and self.accelerator not in (None, self.compile, target.name):
            raise SubmitError(
                f"--accelerator {self.accelerator} is not --compile {self.compile}: drop --accelerator, whose default "
                "is the compiled slice"
            )

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "PlanConfig":
        """Return the configuration of parsed flags.

        Raises:
            SubmitError, DatasetError, TrainingError: a value is out of range, or flags contradict each other.
        """
        predictions = args.max_predictions_per_seq or _max_predictions(args.max_seq_length)
        return cls(
            **flag_values(cls, args),
            examples=from_args(PretrainingDataOptions, args, max_predictions_per_seq=predictions),
            training=PretrainConfig(**flag_values(PretrainConfig, args), data=(), output=""),
        )

    @property
    def compiler_target(self) -> CompilerTarget | None:
        """Return the slice of --compile, None without it. Raise SubmitError if it cannot be compiled for."""
        return None if self.compile is None else target_of(self.compile)

    def examples_by_length(self) -> list[PretrainingDataOptions]:
        """Return the options of the examples for each sequence length of the schedule.

        Raises:
            DatasetError, TrainingError: a length in --schedule is out of range, or the schedule is not valid.
        """
        schedule = self.training.schedule
        if not schedule:
            return [self.examples]
        return [
            dataclasses.replace(self.examples, max_seq_length=length, max_predictions_per_seq=_max_predictions(length))
            for length in scheduled_lengths(schedule)
        ]


def _max_predictions(max_seq_length: int) -> int:
    return math.ceil(_MASKED_LM_PROB * max_seq_length)
