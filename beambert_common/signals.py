"""Signals that end a process: handled for as long as a block runs, by one of a few policies.

`handled_signals` is what they share; `watched_signals` also acts while the main thread is in a call that does not end.
The policies here are to interrupt as Ctrl-C does, and to clean up before the end. A training run, which saves a
checkpoint first, has its own (`trainers.training.preemption`), and so has a request for a TPU
(`deploy.tpu.interrupts`). What Ctrl-C does before and after a command is in `process.py`. This file imports nothing but
the standard library.
"""

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# Supervisors such as `timeout` signal a process and then its group: one request arrives twice within this time.
REPEAT_SECONDS = 1.0
Handler = Callable[[int, FrameType | None], object]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
# What to call before the end: the process that owns the files (a forked child owns none), and what removes them.
_CLEANUPS: list[tuple[int, Callable[[], None]]] = []
_STOP = 0


@contextmanager
def handled_signals(
    numbers: Collection[int], handler: Handler, *, unless_handled: bool = False
) -> Iterator[tuple[int, ...]]:
    """Handle signals by a function while the body runs, and as before afterwards.

    An ignored signal stays ignored, as SIGHUP under nohup. Outside the main thread, where Python takes no signals,
    nothing is changed.

    Args:
        numbers: of the signals.
        handler: gets the number of a signal and the frame it interrupts.
        unless_handled: leave a signal alone that something else handles.

    Yields:
        The numbers of those that the function handles.
    """
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            present = signal.getsignal(number)
            if present in _UNHANDLED if unless_handled else present is not signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
    try:
        yield tuple(previous)
    finally:
        for number, before in previous.items():
            # What the body has installed for good stays; what was not installed by Python cannot be.
            if signal.getsignal(number) is handler and before is not None:
                signal.signal(number, before)


@contextmanager
def watched_signals(watch: Callable[[int], None]) -> Iterator[None]:
    """Call a function in a thread with the number of every signal that Python handles, while the body runs.

    It is called when the signal arrives, even while the main thread is in a long call of TensorFlow or another compiled
    library. No handler is called out of such a call. Outside the main thread nothing is watched.
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
    # The number of every signal is written there when it arrives, before Python looks at it.
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
    """Make SIGTERM and SIGHUP interrupt like Ctrl-C while the body runs."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    with handled_signals(_ENDING, interrupt):
        yield


@contextmanager
def cleanup_on_signals(clean_up: Callable[[], None], numbers: Collection[int] = _ENDING) -> Iterator[tuple[int, ...]]:
    """Call a function before a signal ends the process, while the body runs. It can be nested.

    A signal that something else handles is left alone.

    Args:
        clean_up: removes temporary files or releases a lock; its errors of the file system are ignored.
        numbers: of the signals.

    Yields:
        The numbers of those that this call handles; in a nested one those that the outer handles are not among them.
    """
    entry = (os.getpid(), clean_up)
    _CLEANUPS.append(entry)
    try:
        with handled_signals(numbers, end_by_signal, unless_handled=True) as handled:
            yield handled
    finally:
        _CLEANUPS.remove(entry)


def clean_up_all() -> None:
    """Call what `cleanup_on_signals` of this process was given, the last first."""
    for owner, clean_up in reversed(_CLEANUPS):
        if owner == os.getpid():
            with suppress(OSError):
                clean_up()


def end_by_signal(number: int, _frame: FrameType | None) -> None:
    """End the process as the signal does by itself, after cleaning up. The handler of `cleanup_on_signals`."""
    clean_up_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _reset_in_child() -> None:
    """Give the signals their effect back in a forked child, which has nothing to clean up, and whose parent watches."""
    for number in _ENDING:
        if signal.getsignal(number) is end_by_signal:
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_reset_in_child)
