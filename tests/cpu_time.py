"""Limit and measure the CPU time of the process in tests; the load of the machine has no influence on it."""

import gc
import signal
import time
from collections.abc import Callable
from typing import Any


class _TooSlow(BaseException):
    """An exceeded time limit. It is a BaseException, so that the code under test does not catch it."""


def seconds(function: Callable[[], object], limit: float) -> float:
    """Return the CPU time of a function in seconds, or infinity if it was stopped at a limit.

    Args:
        function: the function, which is called once; its errors are raised.
        limit: the limit in seconds.
    """

    def stop(*_: Any) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    # The time of a garbage collection depends on all objects of the process, including those of earlier tests.
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
