import signal

import pytest


@pytest.fixture
def interrupt_handler():
    """The SIGINT handler of a foreground process, wherever the tests run; yields a function that sets another one."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)
