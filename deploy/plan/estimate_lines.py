"""Format a cost estimate as text and as JSON: one line for each quantity, with its arithmetic.

This file imports neither Beam nor TensorFlow.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beambert.bert_model.config import BertConfig
from beambert.bert_model.size import training_flops_per_token
from beambert.common.formatting import counted, format_duration
from beambert.deploy.plan.data import DISK_GB_A_WORKER, MEMORY_GB_A_VCPU, DataflowPlan, DataPlan
from beambert.deploy.plan.text_estimate import Text
from beambert.deploy.plan.tpu_compiler.compiler_process import CompilerTarget
from beambert.deploy.plan.tpu_compiler.step_estimate import StepEstimate
from beambert.deploy.plan.training import Accelerator, TrainingPlan


class Line(NamedTuple):
    """A quantity of the estimate.

    Attributes:
        name: name of the quantity, in the text and in --json.
        value: the number; NaN where it is unknown.
        shown: the number with its unit, for the text.
        how: the arithmetic, or the source.
    """

    name: str
    value: float
    shown: str
    how: str


def text_lines(text: Text) -> list[Line]:
    """Return the lines of the input."""
    lines = [
        Line("bytes", text.bytes, size(text.bytes), text.origin),
        Line("documents", text.documents, count(text.documents), f"mean size {size(text.bytes / text.documents)}"),
        Line("words", text.words, count(text.words), f"{text.bytes / text.words:.2f} bytes per word"),
        Line("tokens", text.tokens, count(text.tokens), f"{text.tokens_per_word:.3f} tokens per word"),
    ]
    if text.files:
        stored = f"{size(text.stored_bytes)}, {text.bytes / text.stored_bytes:.2f} bytes of text per stored byte"
        lines.insert(0, Line("files", text.files, f"{text.files:,}", stored))
    return lines


def data_lines(text: Text, data: DataPlan, dupe_factor: int, validation_fraction: float) -> list[Line]:
    """Return the lines of partitions, instances and shards."""
    mean = f"mean {size(text.bytes / data.partitions)} of text"
    memory = f"expected; the process that writes its shards needs {size(data.partition_memory)} of memory"
    lines = [
        Line("partitions", data.partitions, f"{data.partitions:,}", mean),
        Line("largest partition", data.largest_partition, size(data.largest_partition), memory),
        Line("corpus", data.corpus_bytes, size(data.corpus_bytes), f"{data.corpus_shards:,} Parquet files"),
    ]
    for length in data.lengths:
        name = f"{length.row_length}: " if len(data.lengths) > 1 else ""
        instances = (
            f"per copy, {text.tokens * (1 - validation_fraction) / length.instances:,.1f} tokens of text each; "
            f"{1 - length.fill:.0%} padding"
        )
        shards = f"{data.partitions:,} partitions x {dupe_factor} copies, plus validation shards"
        how = f"{count(length.examples)} examples x {length.bytes / length.examples:,.0f} bytes"
        lines += [
            Line(f"{name}instances", length.instances, count(length.instances), instances),
            Line(f"{name}rows", length.rows, count(length.rows), "per copy"),
            Line(f"{name}shards", length.files, f"{length.files:,}", shards),
            Line(f"{name}shard bytes", length.bytes, size(length.bytes), how),
        ]
    return lines


def dataflow_lines(data: DataPlan, dataflow: DataflowPlan, cpu_factor: float) -> list[Line]:
    """Return the lines of Dataflow workers and hours, and the quantities that Google Cloud bills."""
    serial = f", {data.serial_seconds:,.0f} of them in one process (vocabulary)" if data.serial_seconds else ""
    vcpus, hours = dataflow.workers * dataflow.vcpus, format_duration(3600 * dataflow.hours)
    return [
        Line(
            "CPU seconds",
            data.cpu_seconds,
            count(data.cpu_seconds),
            f"on a core of the benchmark machine{serial} (docs/benchmarks/scale.md)",
        ),
        Line("workers", dataflow.workers, f"{dataflow.workers:,}", f"{dataflow.vcpus} vCPUs and 16 GB each"),
        Line(
            "hours",
            dataflow.hours,
            hours,
            f"CPU seconds x {cpu_factor:g} / {min(vcpus, data.corpus_shards):,} vCPUs, plus 12 min of start-up",
        ),
        Line("vCPU hours", dataflow.vcpu_hours, f"{dataflow.vcpu_hours:,.1f}", f"{hours} x {vcpus:,} vCPUs"),
        Line(
            "memory GB hours",
            dataflow.memory_gb_hours,
            f"{dataflow.memory_gb_hours:,.1f}",
            f"vCPU hours x {MEMORY_GB_A_VCPU:g} GB",
        ),
        Line(
            "disk GB hours",
            dataflow.disk_gb_hours,
            f"{dataflow.disk_gb_hours:,.1f}",
            f"{hours} x {counted(dataflow.workers, 'worker')} x {DISK_GB_A_WORKER:g} GB",
        ),
        Line(
            "shuffle",
            dataflow.shuffle_bytes,
            size(dataflow.shuffle_bytes),
            f"2 x {size(data.shuffle_bytes)}: documents grouped by partition, written and read",
        ),
        Line("storage", data.stored_bytes, size(data.stored_bytes), "corpus and shards, for as long as you keep them"),
        Line(
            "write operations",
            dataflow.writes,
            f"{dataflow.writes:,}",
            "files created and renamed, and completion markers",
        ),
    ]


def training_lines(
    text: Text,
    data: DataPlan,
    training: TrainingPlan,
    accelerator: Accelerator,
    model: str,
    price_per_hour: float | None,
    *,
    utilization_is_given: bool,
) -> list[Line]:
    """Return the lines of steps, epochs, operations and hours, and the cost where the price of an hour is known."""
    cost = training.cost
    lines = [Line("steps", cost.updates, count(cost.updates), f"{model}, {count(cost.sequences)} sequences")]
    for length, sequences, epochs in zip(data.lengths, training.sequences, training.epochs, strict=True):
        name = f"{length.row_length}: " if len(data.lengths) > 1 else ""
        how = f"{count(sequences)} sequences / {count(length.rows)} rows per copy"
        lines.append(Line(f"{name}epochs", epochs, f"{epochs:,.1f}", how))
    a_word = cost.positions / text.words
    unit_hours, unit = training.hours * accelerator.units, accelerator.unit
    lines += [
        Line(
            "positions per word",
            a_word,
            f"{a_word:,.1f}",
            f"{count(cost.positions)} positions / {count(text.words)} words; the paper counts epochs this way",
        ),
        Line(
            "operations",
            cost.flops,
            f"{cost.flops:.2e}",
            f"{cost.flops / cost.positions:.2e} per position, forward and backward (bert_model/size.py)",
        ),
        Line(
            "utilization",
            training.utilization,
            f"{training.utilization:.3g}",
            "fraction of the accelerator's peak, from --mfu"
            if utilization_is_given
            else "fraction of the accelerator's peak: assumed, not measured; set --mfu as beambert pretrain reports it",
        ),
        Line(
            "hours",
            training.hours,
            format_duration(3600 * training.hours),
            f"on {counted(accelerator.units, unit)} of {accelerator.name} at "
            f"{training.utilization:.3g} of {accelerator.flops / 1e12:,.5g} TFLOP/s"
            + ("" if utilization_is_given else ", an assumed utilization"),
        ),
        Line(
            f"{unit} hours",
            unit_hours,
            f"{unit_hours:,.1f}",
            f"{format_duration(3600 * training.hours)} x {counted(accelerator.units, unit)}",
        ),
    ]
    if price_per_hour is not None:
        amount = unit_hours * price_per_hour
        how = f"{unit_hours:,.1f} {unit} hours x {price_per_hour:g} per {unit} and hour, from --price_per_hour"
        lines.append(Line("cost", amount, f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}", how))
    return lines


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
            "examples per device",
            request.examples,
            f"{request.examples:,}",
            batch + (f", in {micro_batches} micro-batches" if micro_batches > 1 else ""),
        ),
        Line(
            "required memory",
            step.required_bytes,
            gibibytes(step.required_bytes),
            f"per {target.device}, {gibibytes(step.state_bytes)} of it weights and optimizer slots"
            + ("" if step.fits else "; does not fit"),
        ),
        Line(
            "available memory",
            step.available_bytes,
            gibibytes(step.available_bytes),
            f"per {target.device} of {target.name}, by {step.compiler} for {target.topology}",
        ),
        Line(
            "largest batch per device",
            estimate.largest,
            f"{estimate.largest:,}",
            f"--train_batch_size {estimate.largest * devices}{limit}" if estimate.largest else f"none fits{limit}",
        ),
        Line(
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
            "cycles",
            cycles,
            count(cycles),
            "compiler's estimate without collectives; it ranks programs and does not promise a speed",
        ),
        Line("step time", seconds, f"{seconds * 1000:,.3g} ms", f"estimated: cycles at {clock}"),
        Line(
            "estimated utilization",
            utilization,
            f"{utilization:.3g}",
            f"of {target.peak_flops / 1e12:,.5g} TFLOP/s (MFU); not used for the hours above",
        ),
    ]


def gibibytes(value: float) -> str:
    """Format a number of bytes in GiB, the unit of the compiler."""
    return f"{value / 2**30:,.2f} GiB"


def as_text(plan: Mapping[str, Sequence[Line]], warnings: Sequence[str]) -> str:
    """Format the estimate as text: sections by heading, one quantity per line with its arithmetic."""
    width = max(len(line.name) for lines in plan.values() for line in lines)
    shown = max(len(line.shown) for lines in plan.values() for line in lines)
    sections = [
        "\n".join([section, *(f"  {line.name:<{width}}  {line.shown:>{shown}}   {line.how}" for line in lines)])
        for section, lines in plan.items()
    ]
    if warnings:
        sections.append("\n".join(["Warnings", *(f"  - {warning}" for warning in warnings)]))
    return "\n\n".join(sections)


def as_json(plan: Mapping[str, Sequence[Line]], warnings: Sequence[str]) -> str:
    """Format the estimate as JSON: numbers by section and name (null where unknown), and the warnings."""
    sections = {
        section: {line.name: None if math.isnan(line.value) else line.value for line in lines}
        for section, lines in plan.items()
    }
    return json.dumps({**sections, "Warnings": list(warnings)}, indent=2)


def count(value: float) -> str:
    """Format a count with three significant digits."""
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= unit:
            return f"{value / unit:,.3g} {name}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Format a number of bytes with three significant digits and a decimal unit."""
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{float(f'{value / unit:.3g}'):,g} {name}"
    return f"{value:,.0f} B"
