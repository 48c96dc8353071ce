"""Ctrl-C and SIGTERM as a wish to stop at the next safe moment."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interruption:
    """Holds the number of the signal that asked to stop, or None."""

    signal_number: int | None = None


@contextlib.contextmanager
def noticed() -> Iterator[Interruption]:
    """While it lasts, the first SIGINT or SIGTERM is only noted; a second one acts as if nothing had been installed.

    A signal that is ignored when it begins, as SIGINT is under nohup, stays ignored. Outside the main thread, where
    Python takes no signals, nothing is ever noted.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def note(number: int, _frame: FrameType | None) -> None:
        interruption.signal_number = number
        restore()

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    previous = {
        number: signal.signal(number, note)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield interruption
    finally:
        restore()
