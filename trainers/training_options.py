"""The options of the loop, which every command that trains has: devices, numbers, checkpoints, evaluation, faults.

This file imports neither Keras nor TensorFlow.
"""

import argparse

from beambert_flags import WholeNumber, batch_size, boolean, non_negative_int, positive_float, positive_int
from trainers.errors import TrainingError
from trainers.throughput import PEAK_TFLOPS_HELP

STRATEGIES = ("auto", "one", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("float32", "bfloat16")
RECOMPUTATIONS = ("none", "layer", "attention")


def add_training_arguments(parser: argparse.ArgumentParser, best_metric: str | None) -> None:
    """Adds the options; names are those of the released code's flags where it has them.

    Args:
        parser: of a command.
        best_metric: default of --best_metric; None where it depends on what is trained.
    """
    _add_device_arguments(parser)
    _add_number_arguments(parser)
    _add_checkpoint_arguments(parser, best_metric)


def check_devices(args: argparse.Namespace) -> None:
    """Refuses options of devices that contradict each other.

    Raises:
        TrainingError: a flag of a TPU with a strategy that takes none, or without its name.
    """
    for name in ("tpu_name", "tpu_zone", "gcp_project"):
        if getattr(args, name) is None:
            continue
        if args.strategy not in ("auto", "tpu"):
            raise TrainingError(f"--{name} says where a TPU is, but --strategy is {args.strategy}; give --strategy tpu")
        if args.tpu_name is None:
            raise TrainingError(
                f"--{name} is given without --tpu_name; name the TPU, or leave both out for a local one"
            )


def _add_device_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        help="what to train on. one: one device. mirrored: all GPUs of this machine, each with a copy of the model. "
        "multi_worker: several machines, which TF_CONFIG names. tpu: a TPU. auto: what there is, first of all the "
        "machines of TF_CONFIG, then a TPU, several GPUs, one device (default: %(default)s)",
    )
    group.add_argument(
        "--tpu_name", metavar="NAME", help="the TPU, with --strategy tpu (default: that of this machine)"
    )
    group.add_argument("--tpu_zone", metavar="ZONE", help="its zone (default: that of this machine)")
    group.add_argument("--gcp_project", metavar="PROJECT", help="its project (default: that of this machine)")
    group.add_argument(
        "--cpu_devices",
        type=WholeNumber(1, 256),
        default=1,
        metavar="N",
        help="split the CPU into so many devices, to try --strategy mirrored without GPUs; slower than one "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--gradient_accumulation_steps",
        type=batch_size,
        default=1,
        metavar="N",
        help="take the batch of each update in so many parts, one after the other, to save memory. The update is the "
        "same, and steps count updates (default: %(default)s)",
    )
    group.add_argument(
        "--recompute",
        choices=RECOMPUTATIONS,
        default="none",
        help="save memory by computing again, in the backward pass, what happens inside each layer, or inside its "
        "attention alone (default: %(default)s)",
    )
    group.add_argument(
        "--iterations_per_loop",
        type=positive_int,
        metavar="N",
        help="updates between two looks at the metrics, which Ctrl-C waits for too (default: 1 on a CPU, 100 "
        "elsewhere)",
    )
    group.add_argument(
        "--peak_tflops",
        type=positive_float,
        metavar="N",
        help=PEAK_TFLOPS_HELP,
    )


def _add_number_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("numbers")
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="bfloat16: matrix products in 16 bits, on devices that have it; softmax, layer normalisation, loss and "
        "weights stay float32 (default: %(default)s)",
    )
    group.add_argument(
        "--xla",
        choices=("auto", "on", "off"),
        default="auto",
        help="compile the step with XLA; auto: where it is faster (default: %(default)s)",
    )
    group.add_argument(
        "--deterministic_ops",
        type=boolean,
        default=True,
        metavar="true|false",
        help="use only operations that give the same bits every time; false may be faster on GPUs (default: true)",
    )
    group.add_argument(
        "--on_not_finite",
        choices=("stop", "skip"),
        default="stop",
        help="at an update whose loss or gradient is NaN or infinite: stop and name the last good checkpoint, or leave "
        "the weights as they are, count it and go on (default: %(default)s)",
    )


def _add_checkpoint_arguments(parser: argparse.ArgumentParser, best_metric: str | None) -> None:
    group = parser.add_argument_group("checkpoints and evaluation")
    group.add_argument(
        "--save_checkpoints_steps",
        type=positive_int,
        default=1000,
        metavar="N",
        help="updates between checkpoints (default: %(default)s)",
    )
    group.add_argument(
        "--keep_checkpoint_max",
        type=positive_int,
        default=5,
        metavar="N",
        help="how many of the last checkpoints are kept, beside the best one (default: %(default)s)",
    )
    group.add_argument(
        "--keep_checkpoint_every_n_hours",
        type=positive_float,
        metavar="HOURS",
        help="keep one checkpoint for every so many hours of training for good (default: none)",
    )
    group.add_argument(
        "--eval_steps",
        type=non_negative_int,
        default=0,
        metavar="N",
        help="evaluate every N updates too; 0: only at the end (default: %(default)s)",
    )
    group.add_argument(
        "--eval_batch_size",
        type=batch_size,
        default=32,
        metavar="N",
        help="sequences at a time in evaluation; the results do not depend on it (default: %(default)s)",
    )
    group.add_argument(
        "--best_metric",
        default=best_metric,
        metavar="NAME",
        help="metric of the evaluation that decides which checkpoint is the best (default: "
        f"{best_metric or 'that of the task'})",
    )
