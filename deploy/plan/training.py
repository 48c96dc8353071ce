"""Cost estimate of a pretraining run: steps, epochs, operations, accelerator hours.

This file imports neither Beam nor TensorFlow.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_model.config import BertConfig
from pipelines.errors import SubmitError
from trainers.monitoring.throughput import peak_flops
from trainers.optimization.schedule import Stage
from trainers.pretraining.recipes import RunCost, run_cost

# Cores in the name of a slice for each chip: v3-8 is four chips of two cores, v5e-8 is eight chips.
_CORES_A_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2, "v5e": 1, "v5litepod": 1, "v6e": 1}
# Chips of a host machine of a slice; a v5e or v6e slice of up to 8 chips has one host.
_CHIPS_A_HOST = {"v2": 4, "v3": 4, "v4": 4, "v5p": 4, "v5e": 8, "v5litepod": 8, "v6e": 8}
_SLICE = re.compile(r"(v2|v3|v4|v5p|v5e|v5litepod|v6e)-(\d+)")
# Devices as TensorFlow counts them: a core of v2 and v3, else a chip.
_CORES_ARE_DEVICES = ("v2", "v3")


class Accelerator(NamedTuple):
    """What a run trains on.

    Attributes:
        name: name from the flag, such as "v3-8" or "h100".
        kind: its line in the table of prices, such as "v3".
        units: number of billed units: TPU chips or GPUs.
        flops: peak of all of them together, operations a second in bfloat16.
        hosts: number of host machines; 1 where the user decides it.
    """

    name: str
    kind: str
    units: int
    flops: float
    hosts: int


class TrainingPlan(NamedTuple):
    """A run.

    Attributes:
        cost: steps, sequences, positions, operations.
        sequences: read of each length.
        epochs: epochs over the rows of each length.
        hours: of the accelerator, without start-up, evaluation and saving.
        utilization: share of the peak that was reckoned with (MFU).
    """

    cost: RunCost
    sequences: list[int]
    epochs: list[float]
    hours: float
    utilization: float


def find_accelerator(name: str, number: int, peak_tflops: float | None) -> Accelerator:
    """Return the accelerator of `--accelerator`.

    Args:
        name: a TPU slice, such as v3-8, or a GPU, such as h100.
        number: number of slices or GPUs.
        peak_tflops: 10^12 operations a second of one device, where it is unknown.

    Raises:
        SubmitError: an unknown accelerator, or an impossible slice.
    """
    short = name.lower().removeprefix("tpu-")
    match = _SLICE.fullmatch(short)
    if match:
        kind, size = match.group(1), int(match.group(2))
        if size < _CORES_A_CHIP[kind] or size % _CORES_A_CHIP[kind]:
            raise SubmitError(
                f"--accelerator {name} has no whole chip: the number counts the cores of {kind}, "
                f"{_CORES_A_CHIP[kind]} a chip"
            )
        chips = size // _CORES_A_CHIP[kind] * number
        hosts = -(-chips // _CHIPS_A_HOST[kind])
        devices = size * number if kind in _CORES_ARE_DEVICES else chips
        kind = "v5e" if kind == "v5litepod" else kind
    else:
        kind, chips, hosts, devices = short, number, 1, number
    peak = peak_tflops * 1e12 if peak_tflops else peak_flops(kind, "bfloat16")
    if peak is None:
        raise SubmitError(
            f"--accelerator {name} is not known; name a slice of TPUs such as v3-8 or v5e-16, a GPU such as h100, "
            "a100, l4, t4 or v100, or give --peak_tflops of one device"
        )
    return Accelerator(name, kind, chips, peak * devices, hosts)


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
        stages: stages of the run.
        row_lengths, predictions: positions and predictions per row of each --data directory.
        rows: rows in one copy of each directory.
        accelerator: accelerator of the run.
        utilization: fraction of the accelerator's peak (MFU).
    """
    cost = run_cost(config, stages, row_lengths, predictions)
    sequences = [0] * len(row_lengths)
    for stage in stages:
        sequences[stage.data] += stage.batch_size * (stage.end_step - stage.first_step)
    epochs = [count / of_one for count, of_one in zip(sequences, rows, strict=True)]
    hours = cost.flops / (accelerator.flops * utilization) / 3600
    return TrainingPlan(cost, sequences, epochs, hours, utilization)
