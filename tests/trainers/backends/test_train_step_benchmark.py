"""Test that the benchmarks of the JAX step and of attention run without TensorFlow."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules["tensorflow"] = None
runpy.run_path("benchmarks/BENCHMARK.py", run_name="__main__")
"""


def output_of(benchmark: str, *flags: str) -> str:
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW.replace("BENCHMARK", benchmark), *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_row_for_every_variant():
    flags = ["--models", "tiny", "--lengths", "32", "--batch_size", "2", "--steps", "1", "--vocab_size", "100"]
    output = output_of("train_step", *flags, "--matrix_size", "64", "--deterministic_ops")
    assert "deterministic operations" in output
    rows = re.findall(r"^\| tiny \| 32 \| (\w+) \| 2 \| ([\d.]+) \|", output, re.M)
    assert [variant for variant, _ in rows] == ["dropout", "none", "packed"]
    assert all(float(milliseconds) > 0 for _, milliseconds in rows)


def test_attention_with_the_kernel_and_without():
    output = output_of("attention", "--lengths", "64", "--positions", "64", "--steps", "1", "--interpret")
    rows = re.findall(r"^\| 64 \| (\w+) \| ([\d.]+) \| ([\d.]+) \|$", output, re.M)
    assert [name for name, *_ in rows] == ["plain", "kernel"]
    assert all(float(time) > 0 for _, *times in rows for time in times)
