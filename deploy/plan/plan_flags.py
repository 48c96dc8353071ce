"""Define the flags of `beambert plan`. This file imports neither Beam, Keras nor TensorFlow."""

import argparse

from beambert.common.command_line import options
from beambert.common.command_line.flags import Number, batch_size, positive_int
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.deploy.plan.config import PlanConfig
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.formats import FORMATS
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.config.pretrain_config import PretrainConfig
from beambert.trainers.optimization.optimizer_options import OPTIMIZERS
from beambert.trainers.training.training_flags import ACTIVATION_CHECKPOINTING, PRECISIONS

DEFAULT_ACCELERATOR = "v3-8"
# Assumed model FLOPs utilization, not measured on an accelerator (docs/benchmarks/training.md).
DEFAULT_UTILIZATION = 0.45
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
# Bytes or words: at least one, at most an exabyte, so that no estimate is infinite.
_size = Number(1.0, 1e18, most_too=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert plan`."""
    group = options.group(parser, "input")
    group.add_argument(
        "--corpus_bytes", type=_size, metavar="N", help="Size of the text in bytes, such as 1e12 for 1 TB"
    )
    group.add_argument("--words", type=_size, metavar="N", help="Size of the text in words, such as 3.3e9")
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        type=ANY_PATH,
        metavar="GLOB",
        help="Input files or quoted glob patterns, as for `beambert build`; a sample is read and extrapolated",
    )
    group.add_argument(
        "--document_bytes",
        type=_size,
        default=PlanConfig.document_bytes,
        metavar="N",
        help="Mean document size in bytes, used without --input (default: %(default)s, English Wikipedia; about 4000 "
        "is usual for web pages)",
    )
    options.add_arguments(
        parser,
        CorpusOptions,
        _CORPUS_FLAGS.__contains__,
        input_format={"choices": ("auto", *FORMATS)},
        vocab_file={
            "help": "Existing vocab.txt; sets the vocabulary size and, with --input, tokenizes the sample",
        },
    )
    options.add_arguments(
        parser,
        PretrainingDataOptions,
        _EXAMPLE_FLAGS.__contains__,
        max_predictions_per_seq={
            "default": None,
            "help": "Maximum number of masked tokens per example (default: 15 %% of --max_seq_length, rounded up)",
        },
    )
    group = parser.add_argument_group("training")
    group.add_argument("--model", default="base", metavar="NAME", help="Model size (tiny to large) or bert_config.json")
    group.add_argument(
        "--train_batch_size",
        type=batch_size,
        default=256,
        metavar="N",
        help="Global training batch size, in sequences",
    )
    group.add_argument(
        "--num_train_steps", type=positive_int, default=1_000_000, metavar="N", help="Number of training steps"
    )
    group.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        default=PretrainConfig.optimizer,
        help="Optimizer, as in `beambert pretrain`; used by --compile",
    )
    group.add_argument(
        "--schedule",
        metavar="SCHEDULE",
        help="Fraction of the steps for each sequence length, such as 128x0.9,512x0.1; replaces --max_seq_length",
    )

    group = parser.add_argument_group("devices")
    group.add_argument(
        "--accelerator",
        metavar="NAME",
        help="TPU slice (v2-8, v3-8, v4-8, v5e-8, v5p-8, v6e-8, tpu7x-8 and larger) or GPU (h100, a100, l4, t4, v100; "
        f"default: the slice of --compile, else {DEFAULT_ACCELERATOR})",
    )
    group.add_argument(
        "--num_accelerators",
        type=positive_int,
        default=PlanConfig.num_accelerators,
        metavar="N",
        help="Number of TPU slices or GPUs",
    )
    group.add_argument(
        "--mfu",
        type=Number(1e-4, 1.0, most_too=True),
        metavar="FRACTION",
        help="Model FLOPs utilization, as `beambert pretrain` reports it (default: "
        f"{DEFAULT_UTILIZATION}, an assumption that was not measured on any accelerator)",
    )
    group.add_argument(
        "--peak_tflops",
        type=Number(1e-3, 1e6, most_too=True),
        metavar="TFLOPS",
        help="Peak throughput of one device, in TFLOP/s (default: by --accelerator)",
    )
    group.add_argument(
        "--price_per_hour",
        type=Number(0.0, 1e6, most_too=True),
        metavar="PRICE",
        help="Price of a TPU chip or a GPU per hour, from your provider's page; adds the cost of the training",
    )
    group.add_argument(
        "--compile",
        metavar="TYPE",
        help="Compile the training step of the JAX backend for a TPU slice, such as v6e-16, without a TPU: memory, "
        "largest batch, exchanged bytes and estimated time; takes minutes and requires beambert[tpu]",
    )
    group.add_argument(
        "--no_step_time",
        action="store_true",
        help="Omit the estimated step time of --compile, which takes longer than the other results",
    )
    group.add_argument(
        "--gradient_accumulation_steps",
        type=batch_size,
        default=PretrainConfig.gradient_accumulation_steps,
        metavar="N",
        help="Number of micro-batches per step, as in `beambert pretrain`; used by --compile",
    )
    group.add_argument(
        "--shard_optimizer_state",
        action="store_true",
        help="Shard the optimizer state over the devices, as in `beambert pretrain`; used by --compile",
    )
    group.add_argument(
        "--activation_checkpointing",
        choices=ACTIVATION_CHECKPOINTING,
        default=PretrainConfig.activation_checkpointing,
        help="Activations to discard and compute again, as in `beambert pretrain`; used by --compile",
    )

    group = parser.add_argument_group("numerics")
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=PretrainConfig.precision,
        help="Precision of matrix products, as in `beambert pretrain`; used by --compile",
    )

    group = parser.add_argument_group("cost model")
    group.add_argument(
        "--workers",
        type=positive_int,
        metavar="N",
        help="Number of Dataflow workers with 4 vCPUs each (default: enough to finish in about an hour)",
    )
    group.add_argument(
        "--cpu_factor",
        type=Number(1e-3, 1e3, most_too=True),
        default=PlanConfig.cpu_factor,
        metavar="FACTOR",
        help="Dataflow vCPU seconds per CPU second of the benchmark machine (default: %(default)s, an assumption)",
    )

    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="Print the estimate as JSON")
