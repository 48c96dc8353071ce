"""Handle signals that end a process, during a block, by one of several policies.

All policies use `handled_signals`; `watched_signals` also acts while the main thread is in a blocking call. The
policies of this module interrupt like Ctrl-C, or clean up before the end. Training runs, which save a checkpoint
first, and TPU requests have their own policies (`beambert.trainers.training.preemption`,
`beambert.deploy.tpu.interrupts`). `process.py` handles Ctrl-C before and after a command. This file imports only the
standard library.
"""

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# Supervisors such as `timeout` signal a process and its group, so that a signal arrives twice within this time.
REPEAT_SECONDS = 1.0
Handler = Callable[[int, FrameType | None], object]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
# Clean-up functions, and the process that owns them; a forked child owns none.
_CLEANUPS: list[tuple[int, Callable[[], None]]] = []
_STOP = 0


@contextmanager
def handled_signals(
    numbers: Collection[int], handler: Handler, *, unless_handled: bool = False
) -> Iterator[tuple[int, ...]]:
    """Install a signal handler for the duration of the body.

    Ignored signals stay ignored, such as SIGHUP under nohup. Outside the main thread, where Python handles no signals,
    nothing changes.

    Args:
        numbers: signal numbers.
        handler: function of the signal number and the interrupted frame.
        unless_handled: whether to skip signals that have another handler.

    Yields:
        The numbers of the signals that the handler handles.
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
def cleanup_on_signals(clean_up: Callable[[], None], numbers: Collection[int] = _ENDING) -> Iterator[tuple[int, ...]]:
    """Call a function before a signal ends the process, for the duration of the body. Calls can be nested.

    Signals with another handler are skipped.

    Args:
        clean_up: function that removes temporary files or releases a lock; its file system errors are ignored.
        numbers: signal numbers.

    Yields:
        The numbers of the signals that this call handles, without those of an outer call.
    """
    entry = (os.getpid(), clean_up)
    _CLEANUPS.append(entry)
    try:
        with handled_signals(numbers, end_by_signal, unless_handled=True) as handled:
            yield handled
    finally:
        _CLEANUPS.remove(entry)


def clean_up_all() -> None:
    """Call the functions of `cleanup_on_signals` in this process, last one first."""
    for owner, clean_up in reversed(_CLEANUPS):
        if owner == os.getpid():
            with suppress(OSError):
                clean_up()


def end_by_signal(number: int, _frame: FrameType | None) -> None:
    """Clean up, then end the process with the default action of the signal. The handler of `cleanup_on_signals`."""
    clean_up_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _reset_in_child() -> None:
    """Restore the default signal actions in a forked child, which has nothing to clean up."""
    for number in _ENDING:
        if signal.getsignal(number) is end_by_signal:
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_reset_in_child)
