"""Run cases of `updates.py` in a process of its own, since the number of devices is fixed when a backend starts."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests import forked
from tests.conftest import ROOT
from tests.trainers.backends import updates

# The command with a slow disk: a process that does not wait for the chief would not find the checkpoint.
SLOW_DISK = """
import sys, time
from beambert import cli
from beambert.trainers.checkpoints import checkpoint_manager as checkpointing
save = checkpointing.save
def slowly(*arguments, **named):
    time.sleep(2)
    return save(*arguments, **named)
checkpointing.save = slowly
sys.exit(cli.main(sys.argv[1:]))
"""


def free_address() -> str:
    """Return an address of this machine with a free port."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def values_on_devices(directory: Path, backend: str, devices: int, *cases: dict) -> list[dict[str, np.ndarray]]:
    """Return the values of each case by name, from one process with logical CPU devices."""
    output, log = directory / f"{backend}-{devices}.npz", directory / f"{backend}-{devices}.log"
    arguments = {"backend": backend, "devices": devices, "output": str(output), "cases": cases}
    if backend == "tensorflow":
        code = forked.run(log, updates.save_cases, arguments, timeout=600)
    else:
        # Compilation takes most of the time.
        compilation = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax", **compilation}
        command = [sys.executable, updates.__file__, json.dumps(arguments)]
        with log.open("w") as stream:
            code = subprocess.run(command, stdout=stream, stderr=stream, check=False, env=environment).returncode
    assert code == 0, log.read_text()[-3000:]
    with np.load(output) as file:
        values = dict(file)
    return [
        {name.partition(":")[2]: value for name, value in values.items() if name.startswith(f"{number}:")}
        for number in range(len(cases))
    ]


def assert_same_update(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    """Assert equality up to the rounding of float32 sums in another order."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        # A gradient that is 0 in theory, such as that of the key bias, is noise of this size.
        np.testing.assert_allclose(second[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
