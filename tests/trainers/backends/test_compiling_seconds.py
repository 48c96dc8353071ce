"""Tests of the compilation seconds that the steps of both backends report."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TRACING = 0.5
PROGRAM = Path(__file__).with_name("compiling_seconds.py")


@pytest.fixture(scope="module")
def printed():
    """A function from a backend to the output of the program, which runs once per backend."""

    @functools.cache
    def run(backend: str) -> dict:
        command = [sys.executable, str(PROGRAM), backend, str(TRACING)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_compilation_is_measured_where_it_occurs(printed, backend):
    compiling = printed(backend)["compiling"]
    # JAX compiles each shape; TensorFlow compiles once, for a dynamic size.
    is_compiled = [True, False, backend == "jax", False]
    assert [seconds >= TRACING for seconds in compiling] == is_compiled
    assert [seconds > 0 for seconds in compiling] == is_compiled


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_step_that_is_run_alone_changes_no_sum(printed, backend):
    result = printed(backend)
    # TensorFlow adds in float32, JAX on the host in float64.
    dtype = np.float32 if backend == "tensorflow" else np.float64
    for name, ratio in result["together"].items():
        for part in (0, 1):
            total = dtype(0)
            for sums in result["single"]:
                total += dtype(sums[name][part])
            assert ratio[part] == total, name
