"""Format a cost estimate as text and as JSON: one line for each quantity, with its arithmetic.

This file imports neither Beam nor TensorFlow.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from beambert.common.formatting import counted, format_duration
from beambert.deploy.plan.data import DataPlan
from beambert.deploy.plan.dataflow_cost import CloudPlan
from beambert.deploy.plan.prices import Prices
from beambert.deploy.plan.text_estimate import Text
from beambert.deploy.plan.training import Accelerator, TrainingPlan

# Sections in --json, where programs rely on their spelling, if it differs from that of the text.
_JSON_SECTIONS = {"Input": "The text", "Data": "The data", "Dataflow": "Building it on Dataflow", "Cost": "The bill"}
# Names of quantities in the text, where they differ from those in --json.
_NAMES = {
    "pieces": "tokens",
    "updates": "steps",
    "positions a word": "positions per word",
    "writing": "write operations",
    "step seconds": "step time",
}


class Line(NamedTuple):
    """A quantity of the estimate.

    Attributes:
        section: heading of its section.
        name: key of the quantity in --json.
        value: the number; NaN where it is unknown.
        shown: the number with its unit, for the text.
        how: the arithmetic, or the source.
    """

    section: str
    name: str
    value: float
    shown: str
    how: str


def text_lines(text: Text) -> list[Line]:
    """Return the lines of the input."""
    section, origin = "Input", text.origin
    mean = text.bytes / text.documents
    lines = [
        Line(section, "bytes", text.bytes, size(text.bytes), origin),
        Line(section, "documents", text.documents, count(text.documents), f"mean size {size(mean)}"),
        Line(section, "words", text.words, count(text.words), f"{text.bytes / text.words:.2f} bytes per word"),
        Line(section, "pieces", text.tokens, count(text.tokens), f"{text.tokens_per_word:.3f} tokens per word"),
    ]
    if text.files:
        stored = f"{size(text.stored_bytes)}, {text.bytes / text.stored_bytes:.2f} bytes of text per stored byte"
        lines.insert(0, Line(section, "files", text.files, f"{text.files:,}", stored))
    return lines


def data_lines(text: Text, data: DataPlan, dupe_factor: int, validation_fraction: float) -> list[Line]:
    """Return the lines of partitions, instances and shards."""
    section = "Data"
    mean = text.bytes / data.partitions
    lines = [
        Line(section, "partitions", data.partitions, f"{data.partitions:,}", f"mean {size(mean)} of text"),
        Line(
            section,
            "largest partition",
            data.largest_partition,
            size(data.largest_partition),
            f"expected; the process that writes its shards needs {size(data.partition_memory)} of memory",
        ),
        Line(section, "corpus", data.corpus_bytes, size(data.corpus_bytes), f"{data.corpus_shards:,} Parquet files"),
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
            Line(section, f"{name}instances", length.instances, count(length.instances), instances),
            Line(section, f"{name}rows", length.rows, count(length.rows), "per copy"),
            Line(section, f"{name}shards", length.files, f"{length.files:,}", shards),
            Line(section, f"{name}shard bytes", length.bytes, size(length.bytes), how),
        ]
    return lines


def cloud_lines(data: DataPlan, cloud: CloudPlan, cpu_factor: float) -> list[Line]:
    """Return the lines of Dataflow workers, hours and shuffle."""
    section = "Dataflow"
    serial = f", {data.serial_seconds:,.0f} of them in one process (vocabulary)" if data.serial_seconds else ""
    vcpus = cloud.workers * cloud.vcpus
    return [
        Line(
            section,
            "CPU seconds",
            data.cpu_seconds,
            count(data.cpu_seconds),
            f"on a core of the benchmark machine{serial} (docs/benchmarks/scale.md)",
        ),
        Line(section, "workers", cloud.workers, f"{cloud.workers:,}", f"{cloud.vcpus} vCPUs and 16 GB each"),
        Line(
            section,
            "hours",
            cloud.hours,
            format_duration(3600 * cloud.hours),
            f"CPU seconds x {cpu_factor:g} / {min(vcpus, data.corpus_shards):,} vCPUs, plus 12 min of start-up",
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
            f"2 x {size(data.shuffle_bytes)}: documents grouped by partition, written and read",
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
    """Return the lines of steps, epochs, operations and hours."""
    section, cost = "Training", training.cost
    lines = [
        Line(section, "updates", cost.updates, count(cost.updates), f"{model}, {count(cost.sequences)} sequences"),
    ]
    for length, sequences, epochs in zip(data.lengths, training.sequences, training.epochs, strict=True):
        name = f"{length.row_length}: " if len(data.lengths) > 1 else ""
        how = f"{count(sequences)} sequences / {count(length.rows)} rows per copy"
        lines.append(Line(section, f"{name}epochs", epochs, f"{epochs:,.1f}", how))
    a_word = cost.positions / text.words
    lines += [
        Line(
            section,
            "positions a word",
            a_word,
            f"{a_word:,.1f}",
            f"{count(cost.positions)} positions / {count(text.words)} words; the paper counts epochs this way",
        ),
        Line(
            section,
            "operations",
            cost.flops,
            f"{cost.flops:.2e}",
            f"{cost.flops / cost.positions:.2e} per position, forward and backward (bert_model/size.py)",
        ),
        Line(
            section,
            "utilization",
            training.utilization,
            f"{training.utilization:.3g}",
            "fraction of the accelerator's peak, from --mfu"
            if utilization_is_given
            else "fraction of the accelerator's peak: assumed, not measured; set --mfu as beambert pretrain reports it",
        ),
        Line(
            section,
            "hours",
            training.hours,
            format_duration(3600 * training.hours),
            f"on {counted(accelerator.units, accelerator.unit)} of {accelerator.name} at "
            f"{training.utilization:.3g} of {accelerator.flops / 1e12:,.5g} TFLOP/s"
            + ("" if utilization_is_given else ", an assumed utilization"),
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
    """Return the cost of each item, and the total over all items that have a price."""
    section = "Cost"
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
        how = f"unknown and not in the total: add {missing} to [accelerator.{accelerator.kind}] in a --prices file"
        lines.append(Line(section, "accelerator", math.nan, "?", how))
    else:
        unit_hours = training.hours * accelerator.units
        total += unit_hours * dollars
        kind = "spot, " if spot else ""
        how = f"{unit_hours:,.0f} {accelerator.unit} hours x {dollars:g} ({kind}{line.read}{_verified(line.verified)})"
        lines.append(Line(section, "accelerator", unit_hours * dollars, money(unit_hours * dollars), how))
    how = f"{prices.currency}, {prices.region}; excludes taxes, discounts and network egress"
    return [*lines, Line(section, "total", total, money(total), how)]


def _verified(verified: bool) -> str:
    return "" if verified else ", not verified"


def as_text(lines: Sequence[Line], warnings: Sequence[str]) -> str:
    """Format the estimate as text: sections, one quantity per line with its arithmetic."""
    labels = [_label(line.name) for line in lines]
    width = max(map(len, labels))
    shown = max(len(line.shown) for line in lines)
    output: list[str] = []
    section = ""
    for line, label in zip(lines, labels, strict=True):
        if line.section != section:
            section = line.section
            output.append(f"\n{section}" if output else section)
        output.append(f"  {label:<{width}}  {line.shown:>{shown}}   {line.how}")
    if warnings:
        output += ["\nWarnings", *(f"  - {warning}" for warning in warnings)]
    return "\n".join(output)


def _label(name: str) -> str:
    """Return the name of a quantity in the text; a sequence length may precede it, as in "128: rows"."""
    length, separator, quantity = name.rpartition(": ")
    return length + separator + _NAMES.get(quantity, quantity)


def as_json(lines: Sequence[Line], warnings: Sequence[str]) -> str:
    """Format the estimate as JSON: numbers by section and name (null where unknown), and the warnings."""
    content: dict[str, Any] = {}
    for line in lines:
        section = content.setdefault(_JSON_SECTIONS.get(line.section, line.section), {})
        section[line.name] = None if math.isnan(line.value) else line.value
    return json.dumps({**content, "Warnings": list(warnings)}, indent=2)


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


def money(value: float) -> str:
    """Format an amount in dollars."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
