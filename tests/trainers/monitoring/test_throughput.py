"""Test the cost of a step and the peak of devices against data sheets and arithmetic by hand."""

import subprocess
import sys

import pytest

from beambert.bert_model.config import BertConfig
from beambert.trainers.monitoring.throughput import RowCounts, cost_of_step, peak_flops, rows_of


@pytest.mark.parametrize(
    ("device", "half", "single"),
    [
        ("Tesla V100-SXM2-16GB", 125, 15.7),
        ("Tesla V100-PCIE-32GB", 112, 14),
        ("Tesla T4", 65, 8.1),
        ("NVIDIA A10", 125, 62.5),
        ("NVIDIA A10G", 70, 35),
        ("NVIDIA A100-SXM4-40GB", 312, 156),
        ("NVIDIA A100 80GB PCIe", 312, 156),
        ("NVIDIA L4", 121, 60),
        ("NVIDIA L40S", 362, 183),
        ("NVIDIA H100 80GB HBM3", 989.5, 494.5),
        ("NVIDIA H100 PCIe", 756, 378),
        ("NVIDIA H100 NVL", 835.5, 417.5),
        ("NVIDIA H200", 989.5, 494.5),
        ("NVIDIA GH200 480GB", 989.5, 494.5),
        ("NVIDIA B200", 2250, 1125),
        ("TPU v2", 22.5, None),
        ("v2-8", 22.5, None),
        ("TPU v3", 61.5, None),
        ("v3-32", 61.5, None),
        ("TPU v4", 275, None),
        ("TPU v4 lite", None, None),
        ("TPU v5 lite", 197, None),
        ("v5litepod-4", 197, None),
        ("TPU v5e", 197, None),
        ("TPU v5", 459, None),
        ("v5p-8", 459, None),
        ("TPU v6 lite", 918, None),
        ("v6e-8", 918, None),
        ("TPU7x", 1153.5, None),
        ("tpu7x-8", 1153.5, None),
        ("AMD EPYC 9B45", None, None),
        ("NVIDIA GeForce RTX 4090", None, None),
        ("", None, None),
    ],
)
def test_peaks_are_those_of_the_data_sheets(device, half, single):
    for precision, teraflops in (("bfloat16", half), ("float16", half), ("float32", single)):
        expected = teraflops and teraflops * 1e12
        assert peak_flops(device, precision) == expected, precision


def test_the_cost_of_a_step_of_base_is_six_flops_per_parameter_and_token():
    config = BertConfig.preset("base", 30522)
    work = cost_of_step(config, 256, [RowCounts(128, 20, 1000)], "length 128")
    assert (work.sequences, work.tokens, work.label) == (256, 256 * 128, "length 128")
    # The layers have 85,054,464 parameters. Their matrix products and attention over 128 positions count, with 3 x 2
    # operations each.
    layers = 12 * (4 * 768**2 + 2 * 768 * 3072 + 2 * 128 * 768)
    head = 20 / 128 * (768**2 + 768 * 30522) + 768**2 / 128
    assert work.flops == pytest.approx(6 * (layers + head) * work.tokens)


def test_rows_of_several_lengths_count_as_often_as_they_occur():
    config = BertConfig.preset("tiny", 100)
    short, long = (cost_of_step(config, 10, [RowCounts(*row, 1)]) for row in ((32, 4), (128, 20)))
    mixed = cost_of_step(config, 10, [RowCounts(32, 4, 300), RowCounts(128, 20, 100)])
    assert mixed.tokens == 10 * (0.75 * 32 + 0.25 * 128)
    assert mixed.flops == pytest.approx(0.75 * short.flops + 0.25 * long.flops)


def test_rows_are_counted_from_the_manifest(data):
    from beambert.pipelines.dataset import load

    dataset = load(data)
    (rows,) = rows_of(dataset)
    assert rows == (dataset.max_seq_length, dataset.max_predictions_per_seq, dataset.num_examples("train"))


def test_throughput_needs_no_tensorflow():
    code = "import sys, beambert.trainers.monitoring.throughput; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tensorflow", "keras", "apache_beam"}.intersection(name.split(".")[0] for name in loaded)
