"""Tests of the seconds of compilation and of waiting for batches that steps report."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests import forked
from tests.conftest import ROOT
from tests.trainers.backends import step_seconds

TRACING = 0.2


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """A function from a backend to the results of `write_compiling_seconds`."""
    directory = tmp_path_factory.mktemp("compiling")

    @functools.cache
    def run(backend: str) -> dict:
        output, log = directory / f"{backend}.json", directory / f"{backend}.log"
        if backend == "tensorflow":
            code = forked.run(log, step_seconds.write_compiling_seconds, output, TRACING, timeout=600)
        else:
            command = [sys.executable, step_seconds.__file__, str(output), str(TRACING)]
            environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
            with log.open("w") as stream:
                code = subprocess.run(command, stdout=stream, stderr=stream, env=environment, check=False).returncode
        assert code == 0, log.read_text()
        return json.loads(output.read_text())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_compilation_is_measured_where_it_occurs(printed, backend):
    compiling = printed(backend)["compiling"]
    # JAX compiles each shape; TensorFlow compiles once, for a dynamic size.
    is_compiled = [True, False, backend == "jax", False]
    assert [seconds >= TRACING for seconds in compiling] == is_compiled
    assert [seconds > 0 for seconds in compiling] == is_compiled


@pytest.mark.slow
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


def test_a_step_is_not_counted_as_waiting(tmp_path):
    # A machine with one CPU has one thread for the operations of a step.
    steps, seconds = 3, 0.5
    output, log = tmp_path / "seconds", tmp_path / "log"
    code = forked.run(log, step_seconds.write_waiting_seconds, output, steps, seconds, timeout=600)
    assert code == 0, log.read_text()
    assert 0 <= float(output.read_text()) < steps * seconds
