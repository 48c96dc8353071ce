"""Handle signals that end a process, during a block, by one of several policies.

All policies use `handled_signals`; `watched_signals` also acts while the main thread is in a blocking call. The
policies of this module interrupt like Ctrl-C, or end the process by an exception, after which context managers clean
up. Training runs, which save a checkpoint first, and TPU requests have their own policies
(`beambert.trainers.training.preemption`, `beambert.deploy.tpu.interrupts`). `process.py` handles Ctrl-C before and
after a command. This file imports only the standard library.
"""

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

# Supervisors such as `timeout` signal a process and its group, so that a signal arrives twice within this time.
REPEAT_SECONDS = 1.0
Handler = Callable[[int, FrameType | None], object]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
_STOP = 0


@contextmanager
def handled_signals(numbers: Collection[int], handler: Handler, *, unless_handled: bool = False) -> Iterator[None]:
    """Install a signal handler for the duration of the body.

    Ignored signals stay ignored, such as SIGHUP under nohup. Outside the main thread, where Python handles no signals,
    nothing changes.

    Args:
        numbers: signal numbers.
        handler: function of the signal number and the interrupted frame.
        unless_handled: whether to skip signals that have another handler.
    """
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            present = signal.getsignal(number)
            if present in _UNHANDLED if unless_handled else present is not signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            # Handlers that the body has installed permanently are kept; handlers from C cannot be restored.
            if signal.getsignal(number) is handler and before is not None:
                signal.signal(number, before)


@contextmanager
def watched_signals(watch: Callable[[int], None]) -> Iterator[None]:
    """Call a function in a thread with the number of every signal that Python handles, for the duration of the body.

    It is called when the signal arrives, even while the main thread is in a long call of a compiled library such as
    TensorFlow, during which no handler runs. Outside the main thread this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def read() -> None:
        while True:
            for number in os.read(reading, 64):
                if number == _STOP:
                    return
                watch(number)

    watcher = threading.Thread(target=read, daemon=True)
    watcher.start()
    # The kernel's signal handler writes the number of every signal to this file descriptor.
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.write(writing, bytes([_STOP]))
        watcher.join()
        os.close(reading)
        os.close(writing)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP interrupt like Ctrl-C, for the duration of the body."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    with handled_signals(_ENDING, interrupt):
        yield


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, for the duration of the body, so that context managers clean up.

    Signals with another handler are skipped. The exit code is that of a shell for the signal, such as 143.
    """
    ended = False

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal ended
        # A supervisor that signals a process and its group must not interrupt the clean-up.
        if not ended:
            ended = True
            raise SystemExit(128 + number)

    with handled_signals(_ENDING, end, unless_handled=True):
        yield
