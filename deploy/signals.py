"""What ends a process from outside, made to end it in order."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Makes SIGTERM, and the end of the terminal unless that is ignored, interrupt like Ctrl-C while the body runs."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    listened = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                signal.signal(number, interrupt)
                listened.append((number, before))
    try:
        yield
    finally:
        for number, before in listened:
            signal.signal(number, before)
