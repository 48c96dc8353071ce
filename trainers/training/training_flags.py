"""The options of the loop, which every command that trains has: devices, numbers, checkpoints, evaluation, faults.

This file imports neither Keras nor TensorFlow.
"""

import argparse

from beambert_common.command_line.flags import (
    WholeNumber,
    accept_old_name,
    batch_size,
    boolean,
    non_negative_int,
    positive_float,
    positive_int,
)
from trainers.config.run_config import RunConfig
from trainers.monitoring.throughput import PEAK_TFLOPS_HELP

STRATEGIES = ("auto", "one", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("float32", "bfloat16")
ACTIVATION_CHECKPOINTING = ("none", "layer", "attention")


def add_training_arguments(parser: argparse.ArgumentParser, best_metric: str | None) -> None:
    """Add the options; names are those of the released code's flags where it has them.

    Args:
        parser: parser of a command.
        best_metric: default of --best_metric; None if it depends on the task.
    """
    _add_device_arguments(parser)
    _add_number_arguments(parser)
    _add_checkpoint_arguments(parser, best_metric)


def _add_device_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=RunConfig.strategy,
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
        default=RunConfig.cpu_devices,
        metavar="N",
        help="split the CPU into so many devices, to try --strategy mirrored without GPUs; slower than one "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--gradient_accumulation_steps",
        type=batch_size,
        default=RunConfig.gradient_accumulation_steps,
        metavar="N",
        help="split the batch of each step into N micro-batches, computed one after the other, to save memory; the "
        "result of the step is the same (default: %(default)s)",
    )
    flag = group.add_argument(
        "--activation_checkpointing",
        choices=ACTIVATION_CHECKPOINTING,
        default=RunConfig.activation_checkpointing,
        help="save memory by computing again, in the backward pass, what happens inside each layer, or inside its "
        "attention alone (default: %(default)s)",
    )
    accept_old_name(group, flag, "--recompute")
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
        default=RunConfig.precision,
        help="bfloat16: matrix products in 16 bits, on devices that have it; softmax, layer normalisation, loss and "
        "weights stay float32 (default: %(default)s)",
    )
    group.add_argument(
        "--xla",
        choices=("auto", "on", "off"),
        default=RunConfig.xla,
        help="compile the step with XLA; auto: where it is faster (default: %(default)s)",
    )
    group.add_argument(
        "--deterministic_ops",
        type=boolean,
        default=RunConfig.deterministic_ops,
        metavar="true|false",
        help="use only operations that give the same bits every time; false may be faster on GPUs (default: true)",
    )
    flag = group.add_argument(
        "--on_nonfinite",
        choices=("stop", "skip"),
        default=RunConfig.on_nonfinite,
        help="at an update whose loss or gradient is NaN or infinite: stop and name the last good checkpoint, or leave "
        "the weights as they are, count it and go on (default: %(default)s)",
    )
    accept_old_name(group, flag, "--on_not_finite")


def _add_checkpoint_arguments(parser: argparse.ArgumentParser, best_metric: str | None) -> None:
    group = parser.add_argument_group("checkpoints and evaluation")
    group.add_argument(
        "--save_checkpoints_steps",
        type=positive_int,
        default=RunConfig.save_checkpoints_steps,
        metavar="N",
        help="updates between checkpoints (default: %(default)s)",
    )
    group.add_argument(
        "--keep_checkpoint_max",
        type=positive_int,
        default=RunConfig.keep_checkpoint_max,
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
        default=RunConfig.eval_steps,
        metavar="N",
        help="evaluate every N updates too; 0: only at the end (default: %(default)s)",
    )
    group.add_argument(
        "--eval_batch_size",
        type=batch_size,
        default=RunConfig.eval_batch_size,
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
