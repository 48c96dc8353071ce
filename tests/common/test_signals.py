"""Test the handling of signals while a block runs, and the policies that use it."""

import os
import signal
import threading

import pytest

from beambert.common.signals import cleanup_on_signals, handled_signals, interrupted_by_signals, watched_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_like_ctrl_c_and_the_previous_handler_is_restored(number):
    def there(number, frame):
        raise AssertionError

    # The tests themselves may run under nohup, which leaves SIGHUP ignored.
    before = signal.signal(number, there)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is there
    finally:
        signal.signal(number, before)


@pytest.fixture
def own_handlers():
    """Default handlers of SIGTERM and SIGHUP, regardless of how the tests were started."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_handlers")
def test_ignored_signals_and_other_handlers_are_left_alone():
    def other(number, frame):
        raise AssertionError

    seen = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with handled_signals((signal.SIGTERM, signal.SIGHUP), lambda number, frame: seen.append(number)) as handled:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert (handled, seen) == ((signal.SIGTERM,), [signal.SIGTERM])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGHUP, other)
    with handled_signals((signal.SIGTERM, signal.SIGHUP), lambda *_: None, unless_handled=True) as handled:
        assert handled == (signal.SIGTERM,)
        # A handler that the body installs permanently is kept.
        signal.signal(signal.SIGTERM, other)
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is other


@pytest.mark.usefixtures("own_handlers")
def test_outside_the_main_thread_nothing_changes():
    handled = []

    def body():
        with handled_signals((signal.SIGTERM,), lambda *_: None) as numbers, watched_signals(handled.append):
            handled.append(numbers)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert handled == [()]


@pytest.mark.usefixtures("own_handlers")
def test_a_watcher_sees_every_signal_in_order():
    seen = []
    numbers = (signal.SIGTERM, signal.SIGHUP)
    with watched_signals(seen.append), handled_signals(numbers, lambda *_: None):
        for number in (*numbers, *numbers):
            os.kill(os.getpid(), number)
    assert seen == [*numbers, *numbers]


@pytest.mark.usefixtures("own_handlers")
def test_nested_cleanups_are_called_the_last_first_and_the_signal_ends_the_process():
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with (
            cleanup_on_signals(lambda: os.write(writing, b"outer"), (signal.SIGTERM,)) as outer,
            cleanup_on_signals(lambda: os.write(writing, b"inner ")) as inner,
        ):
            os.write(writing, f"{len(outer)} {len(inner)} ".encode())
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
    assert os.read(reading, 100) == b"1 1 inner outer"
    os.close(reading)
