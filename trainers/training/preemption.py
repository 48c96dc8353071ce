"""Ctrl-C and SIGTERM as a wish to stop at the next safe moment."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

from beambert_common.signals import REPEAT_SECONDS, handled_signals, watched_signals

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Holds the number of the signal that asked to stop, or None."""

    signal_number: int | None = None


@contextlib.contextmanager
def preemption_signals() -> Iterator[Interruption]:
    """Record SIGINT and SIGTERM during the body; one more, at least a second later, ends the process.

    The process ends immediately with 128 plus the signal's number, also during a long call into TensorFlow, where
    Python's own handlers would wait.

    A signal that is ignored at the start, as SIGINT under nohup, stays ignored. Outside the main thread, where Python
    receives no signals, none is recorded.
    """
    interruption = Interruption()
    first: float | None = None

    def note(number: int, _frame: FrameType | None) -> None:
        interruption.signal_number = number

    def watch(number: int) -> None:
        nonlocal first
        if number not in _NUMBERS:
            return
        if first is None:
            first = time.monotonic()
            name = signal.Signals(number).name
            _say(f"{name}: a checkpoint is saved after the steps under way; one more ends it at once, unsaved")
        elif time.monotonic() - first >= REPEAT_SECONDS:
            # The live line of a terminal has hidden the cursor.
            _say("\x1b[?25h" if sys.stdout.isatty() else "Ended at once")
            os._exit(128 + number)

    with watched_signals(watch), handled_signals(_NUMBERS, note):
        yield interruption


def _say(line: str) -> None:
    """Write a line past Python's buffers, which the main thread may have locked."""
    # On a terminal the progress line stands where the cursor is.
    begin = "\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{begin}{line}\n".encode())
