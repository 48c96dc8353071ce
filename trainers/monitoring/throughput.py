"""Compute the cost of a step and the peak of a device, from which the model FLOPs utilization (MFU) follows.

This file imports neither Keras nor TensorFlow.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from beambert.bert_model.config import BertConfig
from beambert.bert_model.size import training_flops_per_token
from beambert.pipelines.dataset import Dataset


class StepCost(NamedTuple):
    """The cost of a step, over all devices and micro-batches.

    Attributes:
        sequences: number of sequences in the batch.
        tokens: number of tokens in the batch, including padding, which is computed too; the mean over the data if
            sequence lengths differ.
        flops: floating-point operations of the forward and backward pass (`beambert.bert_model.size`), without
            activation checkpointing and the optimizer, as usual for MFU; the mean over the data if sequence lengths
            differ.
        label: label of the stage in the progress line, such as "length 512"; "" with a single data directory.
        unpadded_tokens: number of tokens in the batch without padding, the mean over the data; 0 if unknown.
    """

    sequences: int
    tokens: float
    flops: float
    label: str = ""
    unpadded_tokens: float = 0.0


class RowCounts(NamedTuple):
    """The examples of one sequence length in a dataset."""

    length: int
    predictions: int
    examples: int


def rows_of(dataset: Dataset, split: str = "train") -> list[RowCounts]:
    """Return the number of examples of each sequence length in a split, shortest first."""
    counts: dict[tuple[int, int], int] = {}
    for shard in dataset.shards_of(split):
        key = (shard.max_seq_length, shard.max_predictions_per_seq)
        counts[key] = counts.get(key, 0) + shard.examples
    return [RowCounts(*key, examples) for key, examples in sorted(counts.items())]


def cost_of_step(config: BertConfig, batch_size: int, rows: Sequence[RowCounts], label: str = "") -> StepCost:
    """Return the mean cost of a step whose examples are sampled from the data.

    Args:
        config: configuration of the model.
        batch_size: global batch size in sequences.
        rows: examples of the data by length, at least one in total; predictions is 0 without a masked-LM head.
        label: label of the stage.
    """
    total = sum(row.examples for row in rows)
    tokens = sum(row.examples * row.length for row in rows) / total
    flops = sum(
        row.examples * row.length * training_flops_per_token(config, row.length, row.predictions) for row in rows
    )
    return StepCost(batch_size, batch_size * tokens, batch_size * flops / total, label)


class TimedSteps(NamedTuple):
    """The work of steps, as in `StepCost`, and their time: total seconds and seconds spent waiting for data."""

    steps: int
    sequences: float
    tokens: float
    flops: float
    seconds: float
    wait_seconds: float
    unpadded_tokens: float = 0.0


def rates_of(timed: Sequence[TimedSteps], peak_flops: float | None) -> dict[str, float]:
    """Return the rates over timed steps, by their names in `metrics.jsonl`; empty without timed steps."""
    seconds = math.fsum(steps.seconds for steps in timed)
    if not seconds > 0:
        return {}
    rates = {
        "sequences_per_second": sum(steps.sequences for steps in timed) / seconds,
        "tokens_per_second": sum(steps.tokens for steps in timed) / seconds,
    }
    if unpadded := sum(steps.unpadded_tokens for steps in timed):
        rates["unpadded_tokens_per_second"] = unpadded / seconds
    if peak_flops:
        rates["model_flops_utilization"] = sum(steps.flops for steps in timed) / seconds / peak_flops
    return rates | {"data_wait_fraction": math.fsum(steps.wait_seconds for steps in timed) / seconds}


class _Peak(NamedTuple):
    """Peak TFLOP/s of one device as TensorFlow and JAX count devices, without sparsity.

    Attributes:
        name: regular expression for the lowercase name of the device.
        half: peak of bfloat16 or float16 products with float32 accumulation.
        single: peak of float32 products with TensorFlow's defaults: TF32 since Ampere, float32 before. None if float32
            products are emulated and no figure is published.
    """

    name: str
    half: float
    single: float | None


# NVIDIA's data sheets list tensor core rates with sparsity since Ampere; the rates without sparsity are half of them.
# Cloud TPU: "Peak compute per chip" of the system architecture pages, https://cloud.google.com/tpu/docs/v2 to /v6e and
# /tpu7x.
# The first match applies, so a name comes before its substrings.
_PEAKS = (
    _Peak(r"\bv100s", 130.0, 16.4),  # V100 data sheet: PCIe 112 and 14, SXM2 125 and 15.7, V100S 130 and 16.4.
    _Peak(r"\bv100.*sxm", 125.0, 15.7),
    _Peak(r"\bv100", 112.0, 14.0),
    _Peak(r"\bt4\b", 65.0, 8.1),  # T4 data sheet; no bfloat16.
    _Peak(r"\ba10g", 70.0, 35.0),  # A10G, for AWS: the A10's tensor cores at a lower rate.
    _Peak(r"\ba10\b", 125.0, 62.5),  # A10 data sheet.
    _Peak(r"\ba100", 312.0, 156.0),  # A100 data sheet, for PCIe and SXM.
    _Peak(r"\bl40s", 362.0, 183.0),  # L40S data sheet.
    _Peak(r"\bl4\b", 121.0, 60.0),  # L4 data sheet: 242 and 120 with sparsity.
    _Peak(r"\bh100.*(pcie|pci-e)", 756.0, 378.0),  # H100 data sheet: PCIe 1,513 and 756, NVL 1,671 and 835,
    _Peak(r"\bh[12]00 nvl", 835.5, 417.5),  # SXM 1,979 and 989 with sparsity; H200's are the H100's.
    _Peak(r"\bh[12]00|\bgh200", 989.5, 494.5),
    _Peak(r"\bg?b200", 2250.0, 1125.0),  # B200 in HGX and DGX, data sheet: 4,500 and 2,250 with sparsity.
    # A v2, v3 or TPU7x chip is two devices, one per core (45, 123 and 2,307 TFLOP/s per chip); others are one device.
    _Peak(r"\bv2\b", 22.5, None),
    _Peak(r"\bv3\b", 61.5, None),
    _Peak(r"\bv4\b(?! lite)", 275.0, None),
    _Peak(r"\bv5( ?lite|litepod|e\b)", 197.0, None),
    _Peak(r"\bv5p?\b", 459.0, None),
    _Peak(r"\bv6( ?lite|e\b)|\btrillium", 918.0, None),
    _Peak(r"\btpu7x?\b", 1153.5, None),
)


def peak_flops(device: str, precision: str) -> float | None:
    """Return the published peak of a device in FLOP/s; None if unknown.

    The peak of a CPU depends on its clock under load and is not listed: give --peak_tflops, which `make bench-train`
    measures.

    Args:
        device: name of a GPU in TensorFlow's device details ("NVIDIA H100 80GB HBM3"), of a TPU in JAX ("TPU v5 lite")
            or of a TPU slice in Google Cloud ("v3-8").
        precision: precision of matrix products: "float32", "bfloat16" or "float16".
    """
    name = device.lower().replace("-", " ").replace("_", " ")
    for peak in _PEAKS:
        if re.search(peak.name, name):
            teraflops = peak.single if precision == "float32" else peak.half
            return teraflops * 1e12 if teraflops else None
    return None
