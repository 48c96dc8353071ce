"""Format the results of the TPU compiler as lines of the cost estimate.

This file imports neither Beam nor TensorFlow.
"""

import math
from collections.abc import Sequence

from beambert.bert_model.config import BertConfig
from beambert.bert_model.size import training_flops_per_token
from beambert.common.formatting import counted
from beambert.deploy.plan.table import Line, count, size
from beambert.deploy.plan.tpu_compiler.compiler_target import CompilerTarget
from beambert.deploy.plan.tpu_compiler.step_estimate import StepEstimate

_SECTION = "TPU compiler"


def compilation_lines(
    estimates: Sequence[StepEstimate], target: CompilerTarget, slices: int, model: BertConfig
) -> list[Line]:
    """Return the lines of memory, largest batch, exchanged bytes and time of each step."""
    lines = []
    for estimate in estimates:
        prefix = f"{estimate.length}: " if len(estimates) > 1 else ""
        of_step = [*_memory_lines(estimate, target, slices), *_time_lines(estimate, target, model)]
        lines += [line._replace(name=prefix + line.name) for line in of_step]
    return lines


def _memory_lines(estimate: StepEstimate, target: CompilerTarget, slices: int) -> list[Line]:
    request, step = estimate.request, estimate.step
    devices = target.devices * slices
    micro_batches = request.training.gradient_accumulation_steps
    batch = f"{request.examples * devices:,} sequences / {counted(devices, target.device)}"
    limit = f"; {estimate.too_large:,} do not fit" if estimate.too_large else "; larger ones were not compiled"
    return [
        Line(
            _SECTION,
            "examples per device",
            request.examples,
            f"{request.examples:,}",
            batch + (f", in {micro_batches} micro-batches" if micro_batches > 1 else ""),
        ),
        Line(
            _SECTION,
            "required memory",
            step.required_bytes,
            gibibytes(step.required_bytes),
            f"per {target.device}, {gibibytes(step.state_bytes)} of it weights and optimizer slots"
            + ("" if step.fits else "; does not fit"),
        ),
        Line(
            _SECTION,
            "available memory",
            step.available_bytes,
            gibibytes(step.available_bytes),
            f"per {target.device} of {target.name}, by {step.compiler} for {target.topology}",
        ),
        Line(
            _SECTION,
            "largest batch per device",
            estimate.largest,
            f"{estimate.largest:,}",
            f"--train_batch_size {estimate.largest * devices}{limit}" if estimate.largest else f"none fits{limit}",
        ),
        Line(
            _SECTION,
            "exchanged bytes",
            step.collective_bytes if step.fits else math.nan,
            size(step.collective_bytes) if step.fits else "?",
            f"per {target.device} and step, in {counted(step.collectives, 'collective operation')}"
            if step.fits
            else "unknown: the step does not fit",
        ),
    ]


def _time_lines(estimate: StepEstimate, target: CompilerTarget, model: BertConfig) -> list[Line]:
    cycles = estimate.cycles
    if cycles is None:
        return []
    features = estimate.request.features
    per_position = training_flops_per_token(model, estimate.length, features["masked_lm_ids"])
    flops = estimate.request.examples * estimate.length * per_position
    seconds = cycles / target.clock
    clock = f"{target.clock / 1e9:.3f} GHz" + (", an assumed clock" if target.is_assumed else "")
    utilization = flops / (cycles * target.flops_per_cycle)
    return [
        Line(
            _SECTION,
            "cycles",
            cycles,
            count(cycles),
            "compiler's estimate without collectives; it ranks programs and does not promise a speed",
        ),
        Line(_SECTION, "step seconds", seconds, f"{seconds * 1000:,.3g} ms", f"estimated: cycles at {clock}"),
        Line(
            _SECTION,
            "estimated utilization",
            utilization,
            f"{utilization:.3g}",
            f"of {target.peak_flops / 1e12:,.5g} TFLOP/s (MFU); not used for the hours above",
        ),
    ]


def gibibytes(value: float) -> str:
    """Format a number of bytes in GiB, the unit of the compiler."""
    return f"{value / 2**30:,.2f} GiB"
