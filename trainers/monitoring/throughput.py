"""The cost of a step, the peak of a device, and from both the utilization that training reaches.

This file imports neither Keras nor TensorFlow.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_model.config import BertConfig
from bert_model.size import training_flops_per_token
from pipelines.dataset import Dataset

PEAK_TFLOPS_HELP = (
    "peak teraflops of one device in the precision of the run, for the model FLOPs utilization (MFU) that is shown; "
    "known for the usual NVIDIA GPUs and Cloud TPUs, so give it for other devices, CPUs included, or to count against "
    "a rate that you have measured"
)


class StepCost(NamedTuple):
    """The cost of one step, over all devices and micro-batches.

    Attributes:
        sequences: rows of the batch.
        tokens: positions of the batch, its rows times their length: padding counts, since it is computed too. The mean
            over the data where rows differ in length.
        flops: floating-point operations of the forward and the backward pass (`bert_model.size`); what recomputation
            and the optimizer add is left out, as is usual for MFU. The mean, the same way.
        label: of the stage, for the progress line, such as "length 512"; "" where there is one stage.
    """

    sequences: int
    tokens: float
    flops: float
    label: str = ""


class Rows(NamedTuple):
    """Rows of one length in a dataset."""

    length: int
    predictions: int
    examples: int


def rows_of(dataset: Dataset, split: str = "train") -> list[Rows]:
    """Return the number of rows of each length in a split, shortest first."""
    counts: dict[tuple[int, int], int] = {}
    for shard in dataset.shards_of(split):
        key = (shard.max_seq_length, shard.max_predictions_per_seq)
        counts[key] = counts.get(key, 0) + shard.examples
    return [Rows(*key, examples) for key, examples in sorted(counts.items())]


def cost_of_step(config: BertConfig, batch_size: int, rows: Sequence[Rows], label: str = "") -> StepCost:
    """Return the cost of a step of `batch_size` rows, drawn from these lengths as often as they occur.

    Args:
        config: shape of the model.
        batch_size: rows a step.
        rows: of the data, at least one in all; predictions 0 for a model without the masked-LM head.
        label: of the stage.
    """
    total = sum(row.examples for row in rows)
    tokens = sum(row.examples * row.length for row in rows) / total
    flops = sum(
        row.examples * row.length * training_flops_per_token(config, row.length, row.predictions) for row in rows
    )
    return StepCost(batch_size, batch_size * tokens, batch_size * flops / total, label)


class _Peak(NamedTuple):
    """Peak teraflops of one device as TensorFlow and JAX count them, without sparsity.

    Attributes:
        name: regular expression over the lower-case name of the device.
        half: of products of bfloat16 or float16 with sums in float32.
        single: of products of float32 as TensorFlow does them by default: TF32 from Ampere on, float32 before it.
            None where float32 products are emulated and no figure is published.
    """

    name: str
    half: float
    single: float | None


# NVIDIA's data sheets print tensor core rates with sparsity from Ampere on; these are the rates without, half of them.
# Cloud TPU: "Peak compute per chip" of the system architecture pages, https://cloud.google.com/tpu/docs/v2 to /v6e.
# The first that fits counts, so that a name stands before one that it contains.
_PEAKS = (
    _Peak(r"\bv100s", 130.0, 16.4),  # V100 data sheet: PCIe 112 and 14, SXM2 125 and 15.7, V100S 130 and 16.4.
    _Peak(r"\bv100.*sxm", 125.0, 15.7),
    _Peak(r"\bv100", 112.0, 14.0),
    _Peak(r"\bt4\b", 65.0, 8.1),  # T4 data sheet; no bfloat16.
    _Peak(r"\ba10g", 70.0, 35.0),  # A10G, made for Amazon: the A10's tensor cores at a lower rate.
    _Peak(r"\ba10\b", 125.0, 62.5),  # A10 data sheet.
    _Peak(r"\ba100", 312.0, 156.0),  # A100 data sheet, for PCIe and SXM.
    _Peak(r"\bl40s", 362.0, 183.0),  # L40S data sheet.
    _Peak(r"\bl4\b", 121.0, 60.0),  # L4 data sheet: 242 and 120 with sparsity.
    _Peak(r"\bh100.*(pcie|pci-e)", 756.0, 378.0),  # H100 data sheet: PCIe 1,513 and 756, NVL 1,671 and 835,
    _Peak(r"\bh[12]00 nvl", 835.5, 417.5),  # SXM 1,979 and 989 with sparsity; H200's are the H100's.
    _Peak(r"\bh[12]00|\bgh200", 989.5, 494.5),
    _Peak(r"\bg?b200", 2250.0, 1125.0),  # B200 in HGX and DGX, data sheet: 4,500 and 2,250 with sparsity.
    # A chip of v2 and v3 is two devices, one for each of its cores (45 and 123 a chip); later ones are one device.
    _Peak(r"\bv2\b", 22.5, None),
    _Peak(r"\bv3\b", 61.5, None),
    _Peak(r"\bv4\b(?! lite)", 275.0, None),
    _Peak(r"\bv5( ?lite|litepod|e\b)", 197.0, None),
    _Peak(r"\bv5p?\b", 459.0, None),
    _Peak(r"\bv6( ?lite|e\b)|\btrillium", 918.0, None),
)


def peak_flops(device: str, precision: str) -> float | None:
    """Return a device's published peak in floating-point operations a second; None where it is unknown.

    A CPU's depends on its clock under load, so none is listed: give --peak_tflops; `make bench-train` measures it.

    Args:
        device: what TensorFlow's device details call a GPU ("NVIDIA H100 80GB HBM3"), JAX a TPU ("TPU v5 lite"), or
            Google Cloud a slice of TPUs ("v3-8").
        precision: "float32", or "bfloat16" or "float16" of the matrix products.
    """
    name = device.lower().replace("-", " ").replace("_", " ")
    for peak in _PEAKS:
        if re.search(peak.name, name):
            teraflops = peak.single if precision == "float32" else peak.half
            return teraflops * 1e12 if teraflops else None
    return None
