"""Define the flags that every training command has: devices, numerics, checkpoints and evaluation.

This file imports neither Keras nor TensorFlow.
"""

import argparse

from beambert.common.command_line.flags import (
    WholeNumber,
    batch_size,
    boolean,
    non_negative_int,
    positive_float,
    positive_int,
)
from beambert.trainers.config.run_config import RunConfig

BACKENDS = ("auto", "tensorflow", "jax")
STRATEGIES = ("auto", "single", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("float32", "bfloat16")
ACTIVATION_CHECKPOINTING = ("none", "layer", "attention")


def add_training_arguments(parser: argparse.ArgumentParser, best_metric: str | None) -> None:
    """Add the flags; they have the names of the released code's flags where it has them.

    Args:
        parser: parser of a command.
        best_metric: default of --best_metric; None if it depends on the task.
    """
    _add_device_arguments(parser)
    _add_numerics_arguments(parser)
    _add_checkpoint_arguments(parser)
    _add_evaluation_arguments(parser, best_metric)


def _add_device_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    add_backend_argument(group, RunConfig.backend)
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=RunConfig.strategy,
        help="Distribution strategy: single, a single device; mirrored, all GPUs of this machine; multi_worker, the "
        "machines in TF_CONFIG or, under JAX, all processes; tpu, a Cloud TPU; auto, all devices that are available "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--coordinator_address",
        metavar="HOST:PORT",
        help="Address of the first of several processes that train together with --backend jax (default: detected on "
        "Cloud TPU, Slurm and Kubernetes)",
    )
    group.add_argument(
        "--num_processes", type=positive_int, metavar="N", help="Number of processes that train together"
    )
    group.add_argument(
        "--process_id",
        type=non_negative_int,
        metavar="N",
        help="Index of this process, from 0; process 0 writes the files",
    )
    group.add_argument("--tpu_name", metavar="NAME", help="Name of the Cloud TPU (default: the local TPU)")
    group.add_argument("--tpu_zone", metavar="ZONE", help="Zone of the Cloud TPU (default: the zone of this machine)")
    group.add_argument(
        "--gcp_project", metavar="PROJECT", help="Project of the Cloud TPU (default: the project of this machine)"
    )
    group.add_argument(
        "--cpu_devices",
        type=WholeNumber(1, 256),
        default=RunConfig.cpu_devices,
        metavar="N",
        help="Number of logical CPU devices, to test --strategy mirrored without GPUs; slower than 1 "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--gradient_accumulation_steps",
        type=batch_size,
        default=RunConfig.gradient_accumulation_steps,
        metavar="N",
        help="Number of micro-batches per step, computed in sequence to save memory; the result of a step stays the "
        "same (default: %(default)s)",
    )
    group.add_argument(
        "--shard_optimizer_state",
        action="store_true",
        help="Shard the optimizer state over the devices, with --backend jax: each device stores a part of it, which "
        "saves memory; checkpoints stay the same",
    )
    group.add_argument(
        "--activation_checkpointing",
        choices=ACTIVATION_CHECKPOINTING,
        default=RunConfig.activation_checkpointing,
        help="Activations to discard and compute again in the backward pass, to save memory: those of each layer, or "
        "those of attention only (default: %(default)s)",
    )
    group.add_argument(
        "--iterations_per_loop",
        type=positive_int,
        metavar="N",
        help="Maximum number of steps per call into the compiled loop; metrics are read and signals handled between "
        "calls (default: 1 on a CPU, 100 on accelerators)",
    )
    group.add_argument(
        "--peak_tflops",
        type=positive_float,
        metavar="N",
        help="Peak TFLOP/s of one device at the precision in use, for the model FLOPs utilization (MFU); known for "
        "common NVIDIA GPUs, required for MFU on other devices (default: by GPU name)",
    )


def add_backend_argument(group: argparse._ArgumentGroup, default: str) -> None:
    """Add --backend to a group of flags."""
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        default=default,
        help="Library that runs the model; auto: JAX where it is installed for a GPU or TPU of this machine, otherwise "
        "TensorFlow (default: %(default)s)",
    )


def add_inference_precision_argument(group: argparse._ArgumentGroup, default: str) -> None:
    """Add --precision of a command that uses a trained model to a group of flags."""
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=default,
        help="Precision of matrix products and of their weights; with bfloat16, embeddings, softmax and layer "
        "normalization stay float32 (default: %(default)s)",
    )


def _add_numerics_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("numerics")
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=RunConfig.precision,
        help="Precision of matrix products; with bfloat16, softmax, layer normalization, loss and weights stay "
        "float32 (default: %(default)s)",
    )
    group.add_argument(
        "--xla",
        choices=("auto", "on", "off"),
        default=RunConfig.xla,
        help="Compile the training step with XLA; auto: on accelerators only (default: %(default)s)",
    )
    group.add_argument(
        "--deterministic_ops",
        type=boolean,
        default=RunConfig.deterministic_ops,
        metavar="true|false",
        help="Use only deterministic operations; false may be faster on GPUs (default: true)",
    )
    group.add_argument(
        "--on_nonfinite",
        choices=("stop", "skip"),
        default=RunConfig.on_nonfinite,
        help="Action at a step whose loss or gradient is NaN or infinite: stop and name the last checkpoint, or skip "
        "the step and count it (default: %(default)s)",
    )


def _add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--save_checkpoints_steps",
        type=positive_int,
        default=RunConfig.save_checkpoints_steps,
        metavar="N",
        help="Steps between checkpoints (default: %(default)s)",
    )
    group.add_argument(
        "--keep_checkpoint_max",
        type=positive_int,
        default=RunConfig.keep_checkpoint_max,
        metavar="N",
        help="Number of recent checkpoints to keep, in addition to the best one (default: %(default)s)",
    )
    group.add_argument(
        "--keep_checkpoint_every_n_hours",
        type=positive_float,
        metavar="HOURS",
        help="Keep one checkpoint permanently for every N hours of training (default: none)",
    )


def _add_evaluation_arguments(parser: argparse.ArgumentParser, best_metric: str | None) -> None:
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--eval_steps",
        type=non_negative_int,
        default=RunConfig.eval_steps,
        metavar="N",
        help="Steps between evaluations; 0 evaluates only at the end (default: %(default)s)",
    )
    group.add_argument(
        "--eval_batch_size",
        type=batch_size,
        default=RunConfig.eval_batch_size,
        metavar="N",
        help="Evaluation batch size in sequences (default: %(default)s)",
    )
    group.add_argument(
        "--best_metric",
        default=best_metric,
        metavar="NAME",
        help=f"Evaluation metric that selects the best checkpoint (default: {best_metric or 'the metric of the task'})",
    )
