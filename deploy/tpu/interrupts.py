"""Ctrl-C, SIGTERM and the end of the terminal while a TPU is held, which must be deleted in any case."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from beambert_common.signals import REPEAT_SECONDS, handled_signals

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal that asks to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Signals as an exception; not while something is deleted."""

    def __init__(self) -> None:
        self._holding: str | None = None
        self._last = -REPEAT_SECONDS

    @contextlib.contextmanager
    def as_interrupts(self) -> Iterator[None]:
        """Raise `Interrupted` in the main thread on a signal, while the body runs. An ignored signal stays ignored."""
        with handled_signals(_NUMBERS, self._handle):
            yield

    @contextlib.contextmanager
    def held(self, message: str) -> Iterator[None]:
        """Print a message on a signal and do nothing else, while the body runs."""
        self._holding = message
        try:
            yield
        finally:
            self._holding = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        before, self._last = self._last, time.monotonic()
        if self._holding is not None:
            print(self._holding, flush=True)
        elif self._last - before >= REPEAT_SECONDS:
            raise Interrupted(number)
