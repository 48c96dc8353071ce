"""The progress line of a training run: live on a terminal, plain lines elsewhere."""

import itertools
import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from beambert_common import terminal
from beambert_common.durations import format_duration

# A run reports, to a log and to TensorBoard, a fixed number of times or at a fixed interval, whichever is more often.
LEAST_REPORTS = 20
MOST_STEPS_A_REPORT = 100


def steps_a_report(num_train_steps: int) -> int:
    """Return the number of steps between two reports of a run."""
    return max(1, min(MOST_STEPS_A_REPORT, num_train_steps // LEAST_REPORTS))


class ProgressLine:
    """Show the state of a run: in place on a terminal, line after line elsewhere; use as a context manager."""

    SECONDS_BETWEEN_UPDATES = 0.1

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None
        self.shown = -math.inf

    def __enter__(self) -> "ProgressLine":
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def is_due(self, report: bool) -> bool:
        """Return whether a line would be shown now.

        Args:
            report: whether the line is to stay in a log; a terminal shows those between two reports too.
        """
        if self.live:
            return report or time.monotonic() - self.shown >= self.SECONDS_BETWEEN_UPDATES
        return report

    def show(self, parts: Sequence[str]) -> None:
        """Show a line.

        Args:
            parts: of the line, the most important first: the last are left out where a terminal is too narrow.
        """
        if self.live is None:
            print_status("  ".join(parts))
            return
        self.shown = time.monotonic()
        ends = itertools.accumulate(cell_len(part) + 2 for part in parts)
        fitting = sum(end - 2 <= self.console.width for end in ends)
        line = "  ".join(parts[: max(1, fitting)])
        self.live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


class TextProgress:
    """Show on standard error how many texts are done, how fast, and how long the rest will take.

    Args:
        size: bytes to be read, None if that is not known.
    """

    SECONDS_BETWEEN_LINES = 10.0

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.texts = 0
        self.is_terminal = sys.stderr.isatty()
        self.start = self.shown = time.monotonic()

    def update(self, texts: int, bytes_read: int) -> None:
        """Count `texts` more, after which N bytes have been read in all."""
        now = time.monotonic()
        self.texts += texts
        if not self.is_terminal and now - self.shown < self.SECONDS_BETWEEN_LINES:
            return
        self.shown = now
        line = f"{self.texts:,} texts, {self.texts / (now - self.start):,.0f} texts/s"
        if self.size and bytes_read:
            line += f", ETA {format_duration((now - self.start) / bytes_read * (self.size - bytes_read))}"
        print(
            f"\r{line}\x1b[K" if self.is_terminal else line,
            end="" if self.is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def finish(self, line: str) -> None:
        """Show a last line, with the rate over all."""
        rate = self.texts / max(time.monotonic() - self.start, 1e-9)
        start = "\r\x1b[K" if self.is_terminal else ""
        print(f"{start}{line}, {rate:,.0f} texts/s", file=sys.stderr, flush=True)


def print_status(line: str) -> None:
    """Print a line, flushed, so that a log file shows it at once."""
    print(line, flush=True)


def warn(line: str) -> None:
    """Print a warning line to standard error."""
    print(f"warning: {terminal.printable(line)}", file=sys.stderr, flush=True)
