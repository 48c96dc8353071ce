"""Handle Ctrl-C and SIGTERM as requests to save a checkpoint and stop."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

from beambert.common.signals import REPEAT_SECONDS, handled_signals, watched_signals

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """The request to stop.

    Attributes:
        signal_number: number of the received signal; None before.
    """

    signal_number: int | None = None


@contextlib.contextmanager
def preemption_signals() -> Iterator[Interruption]:
    """Record SIGINT and SIGTERM during the body; a second signal, at least a second later, ends the process.

    The process then exits immediately with 128 plus the signal number, even during a long call into TensorFlow, where
    Python's own handlers would have to wait.

    A signal that is ignored at the start, such as SIGINT under nohup, stays ignored. Outside the main thread, where
    Python receives no signals, none is recorded.
    """
    interruption = Interruption()
    first: float | None = None

    def record(number: int, _frame: FrameType | None) -> None:
        interruption.signal_number = number

    def watch(number: int) -> None:
        nonlocal first
        if number not in _NUMBERS:
            return
        if first is None:
            first = time.monotonic()
            name = signal.Signals(number).name
            _print_unbuffered(
                f"{name}: saving a checkpoint after the current steps; a second signal stops at once without one"
            )
        elif time.monotonic() - first >= REPEAT_SECONDS:
            # The progress line of a terminal hides the cursor.
            _print_unbuffered("\x1b[?25h" if sys.stdout.isatty() else "Stopped without a checkpoint")
            os._exit(128 + number)

    with watched_signals(watch), handled_signals(_NUMBERS, record):
        yield interruption


def _print_unbuffered(line: str) -> None:
    """Write a line to stderr without Python's buffers, which the main thread may have locked."""
    # On a terminal the cursor is at the end of the progress line.
    begin = "\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{begin}{line}\n".encode())
