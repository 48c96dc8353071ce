"""Handle Ctrl-C, SIGTERM and SIGHUP while a TPU exists, which must be deleted in every case."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from beambert.common.signals import REPEAT_SECONDS, handled_signals

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal requested the end of the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Convert signals to exceptions, except while a TPU is being deleted."""

    def __init__(self) -> None:
        self._ignored_message: str | None = None
        self._last = -REPEAT_SECONDS

    @contextlib.contextmanager
    def as_interrupts(self) -> Iterator[None]:
        """Raise `Interrupted` in the main thread on a signal during the body; signals ignored before stay ignored."""
        with handled_signals(_NUMBERS, self._handle):
            yield

    @contextlib.contextmanager
    def ignored(self, message: str) -> Iterator[None]:
        """Ignore signals during the body except for printing a message."""
        self._ignored_message = message
        try:
            yield
        finally:
            self._ignored_message = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        before, self._last = self._last, time.monotonic()
        if self._ignored_message is not None:
            print_line(self._ignored_message)
        elif self._last - before >= REPEAT_SECONDS:
            raise Interrupted(number)


def print_line(line: str) -> None:
    """Print a line and its newline at once.

    `print` writes them one after the other. A signal whose exception is raised in between would leave a line that the
    next one continues.
    """
    print(f"{line}\n", end="", flush=True)
