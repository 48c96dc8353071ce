"""Test the handling of signals while a block runs, and the policies that use it."""

import os
import signal
import threading

import pytest

from beambert.common.signals import ended_by_signals, handled_signals, interrupted_by_signals, watched_signals


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
    with handled_signals((signal.SIGTERM, signal.SIGHUP), lambda number, frame: seen.append(number)):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGHUP, other)
    with handled_signals((signal.SIGTERM, signal.SIGHUP), lambda *_: None, unless_handled=True):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        # A handler that the body installs permanently is kept.
        signal.signal(signal.SIGTERM, other)
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is other


@pytest.mark.usefixtures("own_handlers")
def test_outside_the_main_thread_nothing_changes():
    handlers = []

    def body():
        with handled_signals((signal.SIGTERM,), lambda *_: None), watched_signals(handlers.append):
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]


@pytest.mark.usefixtures("own_handlers")
def test_a_watcher_sees_every_signal_in_order():
    seen = []
    numbers = (signal.SIGTERM, signal.SIGHUP)
    with watched_signals(seen.append), handled_signals(numbers, lambda *_: None):
        for number in (*numbers, *numbers):
            os.kill(os.getpid(), number)
    assert seen == [*numbers, *numbers]


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_process_after_the_clean_up_even_if_it_is_repeated(number):
    cleaned = []

    def work():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            cleaned.append(number)

    with pytest.raises(SystemExit) as ended, ended_by_signals(), ended_by_signals():
        work()
    assert (ended.value.code, cleaned) == (128 + number, [number])
    assert signal.getsignal(number) is signal.SIG_DFL
