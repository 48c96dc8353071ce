"""The options of `beambert plan`: of the build, of the pretraining run and of the cost model.

This file imports neither Beam, Keras nor TensorFlow.
"""

import argparse
import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from beambert.common.command_line import options
from beambert.common.command_line.flags import Number
from beambert.common.command_line.options import Flag, PositiveInt
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.deploy.plan.data import CPU_FACTOR
from beambert.deploy.plan.text_estimate import WIKIPEDIA_DOCUMENT_BYTES
from beambert.deploy.plan.tpu_compiler.compiler_process import CompilerTarget, target_of
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.formats import FORMATS
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.optimization.schedule import scheduled_lengths
from beambert.trainers.pretraining.options import PretrainOptions

DEFAULT_ACCELERATOR = "v3-8"
# Assumed model FLOPs utilization, not measured on an accelerator (docs/benchmarks/training.md).
DEFAULT_UTILIZATION = 0.45
_MASKED_LM_PROB = 0.15
# Bytes or words: at least one, at most an exabyte, so that no estimate is infinite.
_Size = Annotated[float, Meta(ge=1, le=1e18)]
# Flags of the data commands that an estimate depends on.
_CORPUS_FLAGS = (
    "input_format",
    "text_field",
    "language",
    "vocab_size",
    "vocab_file",
    "num_partitions",
    "validation_fraction",
)
_EXAMPLE_FLAGS = (
    "max_seq_length",
    "max_predictions_per_seq",
    "dupe_factor",
    "objective",
    "masking",
    "pack",
    "format",
    "compression",
)
# Flags of `beambert pretrain` that an estimate depends on, with what differs from that command.
_TRAINING_FLAGS: dict[str, dict[str, Any]] = {
    "model": {"group": "training", "type": str, "default": "base", "metavar": "NAME"}
    | {"help": "Model size (tiny to large) or bert_config.json"},
    "train_batch_size": {"default": 256, "help": "Global training batch size, in sequences"},
    "num_train_steps": {"default": 1_000_000, "help": "Number of training steps"},
    "optimizer": {"group": "training", "help": "Optimizer, as in `beambert pretrain`; used by --compile"},
    "schedule": {"group": "training", "metavar": "SCHEDULE"}
    | {"help": "Fraction of the steps for each sequence length, such as 128x0.9,512x0.1; replaces --max_seq_length"},
    "peak_tflops": {"type": Number(1e-3, 1e6, most_too=True), "metavar": "TFLOPS"}
    | {"help": "Peak throughput of one device, in TFLOP/s (default: by --accelerator)"},
    "gradient_accumulation_steps": {
        "help": "Number of micro-batches per step, as in `beambert pretrain`; used by --compile"
    },
    "shard_optimizer_state": {
        "help": "Shard the optimizer state over the devices, as in `beambert pretrain`; used by --compile"
    },
    "activation_checkpointing": {
        "help": "Activations to discard and compute again, as in `beambert pretrain`; used by --compile"
    },
    "precision": {"help": "Precision of matrix products, as in `beambert pretrain`; used by --compile"},
}


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `beambert plan`.

    Attributes:
        corpus_bytes: Size of the text in bytes, such as 1e12 for 1 TB.
        words: Size of the text in words, such as 3.3e9.
        input: Input files or quoted glob patterns, as for `beambert build`; a sample is read and extrapolated.
        document_bytes: Mean document size in bytes, used without --input (default: 15462, English Wikipedia; about 4000
            is usual for web pages).
        examples: options of `beambert build`.
        training: options of `beambert pretrain`, without directories.
        accelerator: TPU slice (v2-8, v3-8, v4-8, v5e-8, v5p-8, v6e-8, tpu7x-8 and larger) or GPU (h100, a100, l4, t4,
            v100; default: the slice of --compile, else v3-8).
        num_accelerators: Number of TPU slices or GPUs.
        mfu: Model FLOPs utilization, as `beambert pretrain` reports it (default: 0.45, an assumption that was not
            measured on any accelerator).
        price_per_hour: Price of a TPU chip or a GPU per hour, from your provider's page; adds the cost of the training.
        compile: Compile the training step of the JAX backend for a TPU slice, such as v6e-16, without a TPU: memory,
            largest batch, exchanged bytes and estimated time; takes minutes and requires beambert[tpu].
        no_step_time: Omit the estimated step time of --compile, which takes longer than the other results.
        workers: Number of Dataflow workers with 4 vCPUs each (default: enough to finish in about an hour).
        cpu_factor: Dataflow vCPU seconds per CPU second of the benchmark machine (default: 2.0, an assumption).
        json: Print the estimate as JSON.

    The other fields are options of `CorpusOptions`; None is an option without a fixed default that was not given.

    Raises:
        SubmitError: a value is out of range; not exactly one of the three sizes of the text is set, both vocabulary
            options are, predictions are limited with a schedule, or the accelerator is not the compiled slice.
    """

    corpus_bytes: Annotated[_Size | None, Flag("input", metavar="N")] = None
    words: Annotated[_Size | None, Flag("input", metavar="N")] = None
    input: Annotated[list[str], Flag("input", type=ANY_PATH, metavar="GLOB")] = dataclasses.field(default_factory=list)
    document_bytes: Annotated[_Size, Flag("input", metavar="N")] = WIKIPEDIA_DOCUMENT_BYTES
    input_format: str = "auto"
    text_field: str = "text"
    language: str = "en"

    vocab_size: int | None = None
    vocab_file: str | None = None
    num_partitions: int | None = None
    validation_fraction: float = 0.02
    max_predictions_per_seq: int | None = None
    examples: PretrainingDataOptions
    workers: Annotated[PositiveInt | None, Flag("cost model")] = None
    cpu_factor: Annotated[float, Meta(ge=1e-3, le=1e3), Flag("cost model", metavar="FACTOR")] = CPU_FACTOR

    accelerator: Annotated[str | None, Flag("devices", metavar="NAME")] = None
    num_accelerators: Annotated[PositiveInt, Flag("devices")] = 1
    mfu: Annotated[Annotated[float, Meta(ge=1e-4, le=1)] | None, Flag("devices")] = None
    price_per_hour: Annotated[Annotated[float, Meta(ge=0, le=1e6)] | None, Flag("devices", metavar="PRICE")] = None
    compile: Annotated[str | None, Flag("devices", metavar="TYPE")] = None
    no_step_time: Annotated[bool, Flag("devices")] = False
    training: PretrainOptions

    json: Annotated[bool, Flag("output")] = False

    def __post_init__(self) -> None:
        options.check(self, SubmitError)
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert plan`."""
    options.add_groups(parser, "input", "vocabulary", "corpus", "sampling", "masking", "shards", "training", "devices")
    options.add_groups(parser, "numerics", "cost model", "output")
    own = {option.name for option in options.options_of(PlanOptions)}
    options.add_arguments(
        parser,
        PlanOptions,
        {*own, *_EXAMPLE_FLAGS, *_TRAINING_FLAGS}.__contains__,
        max_predictions_per_seq={
            "default": None,
            "help": "Maximum number of masked tokens per example (default: 15 %% of --max_seq_length, rounded up)",
        },
        **_TRAINING_FLAGS,
    )
    options.add_arguments(
        parser,
        CorpusOptions,
        _CORPUS_FLAGS.__contains__,
        input_format={"choices": ("auto", *FORMATS)},
        vocab_file={"help": "Existing vocab.txt; sets the vocabulary size and, with --input, tokenizes the sample"},
    )


def configure(args: argparse.Namespace) -> PlanOptions:
    """Return the options of parsed flags.

    Raises:
        SubmitError, DatasetError, TrainingError: a value is out of range, or flags contradict each other.
    """
    predictions = args.max_predictions_per_seq or _max_predictions(args.max_seq_length)
    return options.from_args(
        PlanOptions,
        args,
        **{name: value for name in _CORPUS_FLAGS if (value := getattr(args, name)) is not None},
        max_predictions_per_seq=args.max_predictions_per_seq,
        examples=options.from_args(PretrainingDataOptions, args, max_predictions_per_seq=predictions),
        training=options.from_args(PretrainOptions, args, data=(), output=""),
    )
