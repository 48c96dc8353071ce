"""Cost estimate of a pretraining run: steps, epochs, operations, accelerator hours.

This file imports neither Beam nor TensorFlow.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from beambert.bert_model.config import BertConfig
from beambert.pipelines.errors import SubmitError
from beambert.trainers.monitoring.throughput import peak_flops
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining.recipes import RunCost, run_cost

# Units in the name of a slice per chip: v3-8 is four chips of two cores, v5e-8 is eight chips.
_CORES_A_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2, "v5e": 1, "v5litepod": 1, "v6e": 1, "tpu7x": 2}
# Chips of the largest slice of one host. The hosts of larger slices have 4 chips each.
_CHIPS_OF_ONE_HOST = {"v2": 4, "v3": 4, "v4": 4, "v5p": 4, "v5e": 8, "v5litepod": 8, "v6e": 8, "tpu7x": 4}
_SLICE = re.compile(r"(v2|v3|v4|v5p|v5e|v5litepod|v6e|tpu7x)-(\d+)")
# TensorFlow and JAX count a core of these chips as a device.
_CORES_ARE_DEVICES = ("v2", "v3", "tpu7x")


class Accelerator(NamedTuple):
    """The accelerator of a run.

    Attributes:
        name: value of the flag in lower case and without "tpu-", such as "v3-8" or "h100".
        kind: key in the price table, such as "v3".
        units: number of billed units: TPU chips or GPUs.
        flops: peak throughput of all units together in bfloat16, in FLOP/s.
        hosts: number of hosts of the TPU slices; 1 for GPUs, whose hosts the user chooses.
        unit: "chip" for TPUs, else "GPU".
    """

    name: str
    kind: str
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
    match = _SLICE.fullmatch(short)
    if match:
        kind, size = match.group(1), int(match.group(2))
        if size < _CORES_A_CHIP[kind] or size % _CORES_A_CHIP[kind]:
            raise SubmitError(
                f"invalid --accelerator {name}: the number counts cores, and a {kind} chip has "
                f"{_CORES_A_CHIP[kind]}; use a multiple of {_CORES_A_CHIP[kind]}"
            )
        slice_chips = size // _CORES_A_CHIP[kind]
        chips = slice_chips * number
        hosts = number * (1 if slice_chips <= _CHIPS_OF_ONE_HOST[kind] else -(-slice_chips // 4))
        devices = size * number if kind in _CORES_ARE_DEVICES else chips
        kind = "v5e" if kind == "v5litepod" else kind
        short = f"{kind}-{size}"
    else:
        kind, chips, hosts, devices = short, number, 1, number
    peak = peak_tflops * 1e12 if peak_tflops else peak_flops(kind, "bfloat16")
    if peak is None:
        raise SubmitError(
            f"unknown --accelerator {name}; use a TPU slice such as v3-8 or v5e-16, a GPU (h100, a100, l4, t4, v100), "
            "or set --peak_tflops of one device"
        )
    return Accelerator(short, kind, chips, peak * devices, hosts, "chip" if match else "GPU")


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
