"""Test the seconds of waiting for batches that TensorFlow steps report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("waiting_seconds.py")
STEPS, SECONDS = 3, 0.5


# A machine with one CPU has one thread for the operations of a step.
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_is_not_counted_as_waiting(threads):
    command = [sys.executable, str(PROGRAM), str(STEPS), str(SECONDS)]
    environment = {**os.environ, "TF_NUM_INTEROP_THREADS": str(threads)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    assert 0 <= float(result.stdout.splitlines()[-1]) < STEPS * SECONDS
