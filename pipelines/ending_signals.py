"""Signals that end a process at once, made to remove its temporary files first."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)
# What to call before the end: the process that owns the files (a forked child owns none), and what removes them.
_REMOVALS: list[tuple[int, Callable[[], None]]] = []


@contextmanager
def removed_on_signals(remove: Callable[[], None]) -> Iterator[None]:
    """Call a function before SIGTERM or SIGHUP ends the process, while the body runs. It can be nested.

    A signal that something else handles, or that is ignored, is left alone. Outside the main thread nothing is changed.

    Args:
        remove: removes temporary files; its errors of the file system are ignored.
    """
    handled = []
    if threading.current_thread() is threading.main_thread():
        handled = [number for number in _NUMBERS if signal.getsignal(number) == signal.SIG_DFL]
    entry = (os.getpid(), remove)
    _REMOVALS.append(entry)
    for number in handled:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        _REMOVALS.remove(entry)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    for owner, remove in reversed(_REMOVALS):
        if owner == os.getpid():
            with suppress(OSError):
                remove()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
