"""The benchmark of the JAX step runs where TensorFlow cannot be imported."""

import os
import re
import subprocess
import sys

from tests.conftest import ROOT

WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules["tensorflow"] = None
runpy.run_path("benchmarks/train_step.py", run_name="__main__")
"""


def test_a_row_for_every_variant():
    flags = ["--models", "tiny", "--lengths", "32", "--batch_size", "2", "--steps", "1", "--vocab_size", "100"]
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *flags, "--matrix_size", "64"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(r"^\| tiny \| 32 \| (\w+) \| 2 \| ([\d.]+) \|", done.stdout, re.M)
    assert [variant for variant, _ in rows] == ["dropout", "none", "packed"]
    assert all(float(milliseconds) > 0 for _, milliseconds in rows)
