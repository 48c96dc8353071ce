"""Cost estimate of a pretraining run: steps, epochs, operations, accelerator hours.

This file imports neither Beam nor TensorFlow.
"""

from collections.abc import Sequence
from typing import NamedTuple

from beambert.bert_model.config import BertConfig
from beambert.deploy.tpu.accelerators import ALIASES, GENERATIONS
from beambert.pipelines.errors import SubmitError
from beambert.trainers.monitoring.throughput import peak_flops
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining.recipes import RunCost, run_cost

# Chips of the largest slice of one host: of a generation with two-dimensional slices of several hosts, and of others.
# The hosts of larger slices have 4 chips each.
_FLAT_HOST_CHIPS, _HOST_CHIPS = 8, 4
# TensorFlow and JAX count a core of these chips as a device.
_CORES_ARE_DEVICES = ("v2", "v3", "tpu7x")


class Accelerator(NamedTuple):
    """The accelerator of a run.

    Attributes:
        name: value of the flag in lower case and without "tpu-", such as "v3-8" or "h100".
        units: number of TPU chips or GPUs, which are billed by the hour.
        flops: peak throughput of all units together in bfloat16, in FLOP/s.
        hosts: number of hosts of the TPU slices; 1 for GPUs, whose hosts the user chooses.
        unit: "chip" for TPUs, else "GPU".
    """

    name: str
    units: int
    flops: float
    hosts: int
    unit: str


class TrainingPlan(NamedTuple):
    """Estimate of a pretraining run.

    Attributes:
        cost: steps, sequences, positions and operations.
        sequences: sequences read of each length.
        epochs: epochs over the rows of each length.
        hours: accelerator hours, without start-up, evaluation and checkpoints.
        utilization: model FLOPs utilization (MFU) of the estimate.
    """

    cost: RunCost
    sequences: list[int]
    epochs: list[float]
    hours: float
    utilization: float


def find_accelerator(name: str, number: int, peak_tflops: float | None) -> Accelerator:
    """Return the accelerator of `--accelerator`.

    Args:
        name: a TPU slice, such as "v3-8", or a GPU, such as "h100".
        number: number of slices or GPUs.
        peak_tflops: peak throughput of one device in TFLOP/s; None for the known value.

    Raises:
        SubmitError: the accelerator is unknown, or the slice does not exist.
    """
    short = name.lower().removeprefix("tpu-")
    kind, _, size = short.rpartition("-")
    generation = GENERATIONS.get(ALIASES.get(kind, kind))
    if generation and size.isdecimal():
        units = generation.units_per_chip
        if int(size) < units or int(size) % units:
            raise SubmitError(
                f"invalid --accelerator {name}: the number counts cores, and a {kind} chip has {units}; use a multiple "
                f"of {units}"
            )
        chips = int(size) // units
        is_flat = not generation.cubes and not generation.single_host_only
        one_host = chips <= (_FLAT_HOST_CHIPS if is_flat else _HOST_CHIPS)
        hosts = number * (1 if one_host else -(-chips // _HOST_CHIPS))
        chips *= number
        devices = chips * (2 if ALIASES.get(kind, kind) in _CORES_ARE_DEVICES else 1)
        unit = "chip"
    else:
        kind, chips, hosts, devices, unit = short, number, 1, number, "GPU"
    peak = peak_tflops * 1e12 if peak_tflops else peak_flops(kind, "bfloat16")
    if peak is None:
        raise SubmitError(
            f"unknown --accelerator {name}; use a TPU slice such as v3-8 or v5e-16, a GPU (h100, a100, l4, t4, v100), "
            "or set --peak_tflops of one device"
        )
    return Accelerator(short, chips, peak * devices, hosts, unit)


def plan_training(
    config: BertConfig,
    stages: Sequence[Stage],
    row_lengths: Sequence[int],
    predictions: Sequence[int],
    rows: Sequence[float],
    accelerator: Accelerator,
    utilization: float,
) -> TrainingPlan:
    """Estimate a training run.

    Args:
        config: configuration of the model.
        stages: stages of the schedule.
        row_lengths, predictions: sequence length and maximum number of masked tokens of each data set.
        rows: rows in one copy of each data set.
        accelerator: the accelerator.
        utilization: fraction of the accelerator's peak (MFU).
    """
    cost = run_cost(config, stages, row_lengths, predictions)
    sequences = [0] * len(row_lengths)
    for stage in stages:
        sequences[stage.data] += stage.batch_size * (stage.end_step - stage.first_step)
    epochs = [count / of_one for count, of_one in zip(sequences, rows, strict=True)]
    hours = cost.flops / (accelerator.flops * utilization) / 3600
    return TrainingPlan(cost, sequences, epochs, hours, utilization)
