"""Run functions in separate processes, which a test may kill or let fail, at a cost of a tenth of a second each.

The processes are forked from one that has imported TensorFlow but not used it.
"""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["tensorflow", "keras", "pytest", "hypothesis", "beambert", "trainers.commands.pretrain", "trainers.training.loop"]
)


def start(log: Path, function, *arguments):
    """Start `function(*arguments)`, a function at the top level of a module; append its output to `log`."""
    process = _CONTEXT.Process(target=_call, args=(log, function, arguments), daemon=True)
    process.start()
    return process


def run(log: Path, function, *arguments, timeout: float = 120) -> int:
    """Call a function in a separate process; return its exit code, or minus the number of the signal that ended it."""
    process = start(log, function, *arguments)
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{arguments} still ran after {timeout} seconds: {log.read_text()}")
    return process.exitcode


def _call(log: Path, function, arguments):
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    # SIGINT acts as in the foreground of a terminal, regardless of where the tests run.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(function(*arguments))
