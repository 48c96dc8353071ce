"""Run updates_on_devices.py in processes of their own and read what it saves."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = Path(__file__).with_name("updates_on_devices.py")
PLAIN = {"batch_size": 32, "steps": 3}


def free_address() -> str:
    """Return an address of this machine with a free port."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def start(backend: str, devices: int, replicas: int, output: Path, cases: Any, **options: Any) -> subprocess.Popen:
    """Start the program; `environment` has environment variables, the other options are arguments of the program."""
    environment = options.pop("environment", {})
    cases = [{**PLAIN, **case} for case in cases]
    given = {"backend": backend, "devices": devices, "replicas": replicas, "output": str(output), "cases": cases}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps({**given, **options})],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def results(process: subprocess.Popen, output: Path, count: int) -> list[dict[str, np.ndarray]]:
    """Return the values of each case by name."""
    log, _ = process.communicate(timeout=600)
    assert process.returncode == 0, log[-3000:]
    with np.load(output) as file:
        values = {name: file[name] for name in file.files}
    return [
        {name.partition(":")[2]: value for name, value in values.items() if name.startswith(f"{number}:")}
        for number in range(count)
    ]


def made(directory: Path, backend: str, devices: int, *cases: dict) -> list[dict[str, np.ndarray]]:
    """Return the values of each case, from one process with logical CPU devices."""
    output = directory / f"{backend}-{devices}.npz"
    return results(start(backend, devices, devices, output, cases), output, len(cases))


def assert_same_update(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    """Assert equality up to the rounding of float32 sums in another order."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        # A gradient that is 0 in theory, such as that of the key bias, is noise of this size.
        np.testing.assert_allclose(second[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
