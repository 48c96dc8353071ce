"""Limits of CPU time for tests: of the process, so that a busy machine has no influence."""

import gc
import signal
import time
from collections.abc import Callable
from typing import Any


class _TooSlow(BaseException):
    """The time is up; no code under test catches it."""


def seconds(function: Callable[[], object], limit: float) -> float:
    """Return the CPU time that a function takes, infinite where it was ended at a limit.

    Args:
        function: to be called once; an error in it is raised.
        limit: in seconds.
    """

    def stop(*_: Any) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    # A collection takes time for all objects of the process, also those of earlier tests.
    collecting = gc.isenabled()
    gc.disable()
    signal.setitimer(signal.ITIMER_PROF, limit)
    start = time.process_time()
    try:
        function()
        return time.process_time() - start
    except _TooSlow:
        return float("inf")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if collecting:
            gc.enable()
        signal.signal(signal.SIGPROF, before)
