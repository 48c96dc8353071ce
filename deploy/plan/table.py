"""A plan as lines: what is told of each part, with its arithmetic, for people and for programs.

This file imports neither Beam nor TensorFlow.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from beambert_common.durations import format_duration
from deploy.plan.data import DataPlan
from deploy.plan.dataflow_cost import CloudPlan
from deploy.plan.prices import Prices
from deploy.plan.text_estimate import Text
from deploy.plan.training import Accelerator, TrainingPlan


class Line(NamedTuple):
    """A line of the plan.

    Attributes:
        section: its heading.
        name: what it is, one word or several.
        value: a number, for --json.
        shown: the number as people read it.
        how: the arithmetic, or the source.
    """

    section: str
    name: str
    value: float
    shown: str
    how: str


def text_lines(text: Text) -> list[Line]:
    """Return the lines about the input."""
    section, origin = "The text", text.origin
    mean = text.bytes / text.documents
    lines = [
        Line(section, "bytes", text.bytes, size(text.bytes), origin),
        Line(section, "documents", text.documents, count(text.documents), f"of {size(mean)} on average"),
        Line(section, "words", text.words, count(text.words), f"{text.bytes / text.words:.2f} bytes each"),
        Line(section, "pieces", text.tokens, count(text.tokens), f"{text.tokens_per_word:.3f} a word"),
    ]
    if text.files:
        stored = f"{size(text.stored_bytes)}, {text.bytes / text.stored_bytes:.2f} bytes of text for each"
        lines.insert(0, Line(section, "files", text.files, f"{text.files:,}", stored))
    return lines


def data_lines(text: Text, data: DataPlan, dupe_factor: int, validation_fraction: float) -> list[Line]:
    """Return the lines about partitions, examples and shards."""
    section = "The data"
    mean = text.bytes / data.partitions
    lines = [
        Line(section, "partitions", data.partitions, f"{data.partitions:,}", f"of {size(mean)} of text on average"),
        Line(
            section,
            "largest partition",
            data.largest_partition,
            size(data.largest_partition),
            f"expected; {size(data.partition_memory)} of memory for the process that makes its shards",
        ),
        Line(
            section, "corpus", data.corpus_bytes, size(data.corpus_bytes), f"of Parquet in {data.corpus_shards:,} files"
        ),
    ]
    for length in data.lengths:
        name = f"{length.row_length}: " if len(data.lengths) > 1 else ""
        instances = (
            f"of one copy, {text.tokens * (1 - validation_fraction) / length.instances:,.1f} pieces of text "
            f"each; positions filled {length.fill:.0%}"
        )
        shards = f"{data.partitions:,} partitions x {dupe_factor} copies, and the held-out ones"
        how = f"{count(length.examples)} examples x {length.bytes / length.examples:,.0f} bytes"
        lines += [
            Line(section, f"{name}instances", length.instances, count(length.instances), instances),
            Line(section, f"{name}rows", length.rows, count(length.rows), "of one copy"),
            Line(section, f"{name}shards", length.files, f"{length.files:,}", shards),
            Line(section, f"{name}shard bytes", length.bytes, size(length.bytes), how),
        ]
    return lines


def cloud_lines(data: DataPlan, cloud: CloudPlan, cpu_factor: float) -> list[Line]:
    """Return the lines about workers, hours and shuffle."""
    section = "Building it on Dataflow"
    serial = f", {data.serial_seconds:,.0f} of them the vocabulary's, in one place" if data.serial_seconds else ""
    vcpus = cloud.workers * cloud.vcpus
    return [
        Line(
            section,
            "CPU seconds",
            data.cpu_seconds,
            count(data.cpu_seconds),
            f"on a core of the machine that was measured{serial} (docs/SCALE.md)",
        ),
        Line(section, "workers", cloud.workers, f"{cloud.workers:,}", f"of {cloud.vcpus} vCPUs and 16 GB"),
        Line(
            section,
            "hours",
            cloud.hours,
            format_duration(3600 * cloud.hours),
            f"CPU seconds x {cpu_factor:g} / {min(vcpus, data.corpus_shards):,} vCPUs, and 12 minutes to start",
        ),
        Line(
            section,
            "vCPU hours",
            cloud.vcpu_hours,
            f"{cloud.vcpu_hours:,.1f}",
            f"{format_duration(3600 * cloud.hours)} x {vcpus:,} vCPUs",
        ),
        Line(
            section,
            "shuffle",
            cloud.shuffle_bytes,
            size(cloud.shuffle_bytes),
            f"2 x {size(data.shuffle_bytes)}: documents on their way to their partition, written and read",
        ),
    ]


def training_lines(
    text: Text,
    data: DataPlan,
    training: TrainingPlan,
    accelerator: Accelerator,
    model: str,
    *,
    utilization_is_given: bool,
) -> list[Line]:
    """Return the lines about steps, epochs, operations and hours."""
    section, cost = "Training", training.cost
    lines = [
        Line(section, "updates", cost.updates, count(cost.updates), f"{model}, {count(cost.sequences)} sequences"),
    ]
    for length, sequences, epochs in zip(data.lengths, training.sequences, training.epochs, strict=True):
        name = f"{length.row_length}: " if len(data.lengths) > 1 else ""
        how = f"{count(sequences)} sequences / {count(length.rows)} rows of one copy"
        lines.append(Line(section, f"{name}epochs", epochs, f"{epochs:,.1f}", how))
    a_word = cost.positions / text.words
    lines += [
        Line(
            section,
            "positions a word",
            a_word,
            f"{a_word:,.1f}",
            f"{count(cost.positions)} positions / {count(text.words)} words: epochs as the paper counts them",
        ),
        Line(
            section,
            "operations",
            cost.flops,
            f"{cost.flops:.2e}",
            f"{cost.flops / cost.positions:.2e} for each position, forward and backward (bert_model/size.py)",
        ),
        Line(
            section,
            "utilization",
            training.utilization,
            f"{training.utilization:.3g}",
            "of the accelerator's peak, from --mfu"
            if utilization_is_given
            else "of the accelerator's peak: a goal, not measured; --mfu takes the share that beambert pretrain shows",
        ),
        Line(
            section,
            "hours",
            training.hours,
            format_duration(3600 * training.hours),
            f"on {accelerator.units} {_unit(accelerator)}(s) of {accelerator.name} at {training.utilization:.3g} of "
            f"{accelerator.flops / 1e12:,.5g} TFLOP/s{'' if utilization_is_given else ', if that goal is reached'}",
        ),
    ]
    return lines


def bill_lines(
    data: DataPlan,
    cloud: CloudPlan,
    training: TrainingPlan,
    accelerator: Accelerator,
    prices: Prices,
    storage_months: float,
    *,
    spot: bool,
) -> list[Line]:
    """Return the cost of each item and the sum, which names the items without a price."""
    section = "The bill"
    flow, storage = prices.dataflow, prices.storage
    kept = (data.corpus_bytes + data.shard_bytes) / 1e9
    items = [
        ("vCPUs", cloud.vcpu_hours, "vCPU hours", flow["vcpu_hour"]),
        ("memory", cloud.memory_gb_hours, "GB hours", flow["memory_gb_hour"]),
        ("disks", cloud.disk_gb_hours, "GB hours", flow["disk_gb_hour"]),
        ("shuffle", cloud.shuffle_bytes / 1e9, "GB", flow["shuffle_gb"]),
        ("storage", kept * storage_months, "GB months", storage["gb_month"]),
        ("writing", cloud.writes / 1e3, "thousand objects", storage["thousand_writes"]),
    ]
    lines, total = [], 0.0
    for name, amount, unit, price in items:
        total += amount * price.price
        how = f"{amount:,.1f} {unit} x {price.price:g} ({price.read}{_verified(price.verified)})"
        lines.append(Line(section, name, amount * price.price, money(amount * price.price), how))
    line = prices.accelerator.get(accelerator.name, prices.accelerator.get(accelerator.kind))
    dollars = line and (line.spot if spot else line.price)
    if line is None or dollars is None:
        missing = "spot" if line else "price"
        how = f"unknown: add {missing} to [accelerator.{accelerator.kind}] in a --prices file; not in the sum"
        lines.append(Line(section, "accelerator", math.nan, "?", how))
    else:
        unit_hours = training.hours * accelerator.units
        total += unit_hours * dollars
        kind = "spot, " if spot else ""
        how = (
            f"{unit_hours:,.0f} {_unit(accelerator)} hours x {dollars:g} ({kind}{line.read}{_verified(line.verified)})"
        )
        lines.append(Line(section, "accelerator", unit_hours * dollars, money(unit_hours * dollars), how))
    how = f"{prices.currency}, {prices.region}; without taxes, discounts and traffic out of the region"
    return [*lines, Line(section, "total", total, money(total), how)]


def _verified(verified: bool) -> str:
    return "" if verified else ", not verified"


def _unit(accelerator: Accelerator) -> str:
    return "chip" if accelerator.kind.startswith("v") and accelerator.kind != "v100" else "GPU"


def as_text(lines: Sequence[Line], warnings: Sequence[str]) -> str:
    """Format the plan as text: sections, one item a line with its arithmetic."""
    names = max(len(line.name) for line in lines)
    shown = max(len(line.shown) for line in lines)
    output: list[str] = []
    section = ""
    for line in lines:
        if line.section != section:
            section = line.section
            output.append(f"\n{section}" if output else section)
        output.append(f"  {line.name:<{names}}  {line.shown:>{shown}}   {line.how}")
    if warnings:
        output += ["\nWarnings", *(f"  - {warning}" for warning in warnings)]
    return "\n".join(output)


def as_json(lines: Sequence[Line], warnings: Sequence[str]) -> str:
    """Format the plan as JSON: numbers by section and name (null where unknown), and the warnings."""
    content: dict[str, Any] = {}
    for line in lines:
        content.setdefault(line.section, {})[line.name] = None if math.isnan(line.value) else line.value
    return json.dumps({**content, "Warnings": list(warnings)}, indent=2)


def count(value: float) -> str:
    """Format a count to three digits."""
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= unit:
            return f"{value / unit:,.3g} {name}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Format a number of bytes to three digits."""
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{float(f'{value / unit:.3g}'):,g} {name}"
    return f"{value:,.0f} B"


def money(value: float) -> str:
    """Format an amount in dollars."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
