import os
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.trainers.optimization.optimizer_steps import CASES, weights_after


@pytest.fixture(scope="session")
def jax_results(tmp_path_factory):
    """The results of every case of `optimizer_steps` and the learning rates, from a process with JAX."""
    path = tmp_path_factory.mktemp("jax") / "steps.npz"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    program = ROOT / "tests" / "trainers" / "optimization" / "optimizer_steps.py"
    answer = subprocess.run(
        [sys.executable, program, path], capture_output=True, text=True, env=environment, check=False
    )
    assert answer.returncode == 0, answer.stderr
    with np.load(path) as stored:
        results = {key: stored[key] for key in stored.files}
    names = {**{case: str(number) for number, case in enumerate(CASES)}, "rates": "rates"}
    return {
        case: {key.split("/", 1)[1]: value for key, value in results.items() if key.startswith(f"{name}/")}
        for case, name in names.items()
    }


@pytest.fixture(params=["tensorflow", "jax"])
def steps_made(request):
    """A function that returns the results of a case of `optimizer_steps` with a backend."""
    if request.param == "tensorflow":
        return lambda *case: weights_after(*case)
    results = request.getfixturevalue("jax_results")
    return lambda *case: results[case]
