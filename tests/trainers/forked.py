"""Runs functions in processes of their own: real ones, to be killed and to fail, at a tenth of a second each.

They are forked from a process that has imported TensorFlow and done nothing with it.
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
    """Starts `function(*arguments)`, of the top level of a module; all that it prints is appended to `log`."""
    process = _CONTEXT.Process(target=_call, args=(log, function, arguments), daemon=True)
    process.start()
    return process


def run(log: Path, function, *arguments, timeout: float = 120) -> int:
    """Calls the function in a process of its own; its exit code, minus a signal's number if that ended it."""
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
    # As in a terminal's foreground, wherever the tests run.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(function(*arguments))
