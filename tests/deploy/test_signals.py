"""What a process does that is told to end while a job of its runs elsewhere."""

import os
import signal

import pytest

from deploy.signals import interrupted_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_like_ctrl_c_and_what_was_there_comes_back(number):
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


def test_under_nohup_the_end_of_the_terminal_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
