"""Ctrl-C and SIGTERM as a wish to stop at the next safe moment."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from types import FrameType

# Supervisors such as `timeout` signal a process and then its group, so that one wish arrives twice.
SECONDS_OF_ONE_WISH = 1.0
_END = 0


class Interruption:
    """Holds the number of the signal that asked to stop, or None."""

    signal_number: int | None = None


@contextlib.contextmanager
def noticed() -> Iterator[Interruption]:
    """While it lasts, SIGINT and SIGTERM are only noted; one more, a second or more after the first, ends the process.

    That end is at once, with 128 plus the signal's number, whatever the main thread is doing: within a long call into
    TensorFlow, Python's own handlers would wait for its end.

    A signal that is ignored when it begins, as SIGINT is under nohup, stays ignored. Outside the main thread, where
    Python takes no signals, nothing is ever noted.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def note(number: int, _frame: FrameType | None) -> None:
        interruption.signal_number = number

    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=_watch, args=(reading, numbers), daemon=True)
    watcher.start()
    # The number of every signal is written there when it arrives, before Python looks at it.
    previous_descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_descriptor)
        os.write(writing, bytes([_END]))
        watcher.join()
        os.close(reading)
        os.close(writing)


def _watch(reading: int, numbers: Collection[int]) -> None:
    first: float | None = None
    while True:
        for number in os.read(reading, 64):
            if number == _END:
                return
            if number not in numbers:
                continue
            if first is None:
                first = time.monotonic()
                name = signal.Signals(number).name
                _say(f"{name}: a checkpoint is saved after the steps under way; one more ends it at once, unsaved")
            elif time.monotonic() - first >= SECONDS_OF_ONE_WISH:
                # The live line of a terminal has hidden the cursor.
                _say("\x1b[?25h" if sys.stdout.isatty() else "Ended at once")
                os._exit(128 + number)


def _say(line: str) -> None:
    """Writes a line past Python's buffers, which the main thread may be holding."""
    # On a terminal the progress line stands where the cursor is.
    begin = "\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{begin}{line}\n".encode())
