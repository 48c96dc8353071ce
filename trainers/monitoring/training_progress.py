"""Print the progress of a command: in place on a terminal, as plain lines elsewhere."""

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

# A run writes to its log and to TensorBoard at least LEAST_REPORTS times, at intervals of at most MOST_STEPS_A_REPORT.
LEAST_REPORTS = 20
MOST_STEPS_A_REPORT = 100


def steps_a_report(num_train_steps: int) -> int:
    """Return the number of steps between two reports of a run."""
    return max(1, min(MOST_STEPS_A_REPORT, num_train_steps // LEAST_REPORTS))


class ProgressLine:
    """Print the progress line of a run: in place on a terminal, as lines elsewhere; use as a context manager."""

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
        """Return whether to print a line now.

        Args:
            report: whether a report is due; a terminal also shows lines between two reports.
        """
        if self.live:
            return report or time.monotonic() - self.shown >= self.SECONDS_BETWEEN_UPDATES
        return report

    def show(self, parts: Sequence[str]) -> None:
        """Print a line.

        Args:
            parts: parts of the line, most important first; a narrow terminal shows only the first ones.
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
    """Print the number of processed texts, their rate and the ETA to standard error.

    Args:
        size: size of the input in bytes, or in any other unit of work; None if unknown.
        things: name of the processed things, in the plural.
    """

    SECONDS_BETWEEN_LINES = 10.0

    def __init__(self, size: int | None, things: str = "texts") -> None:
        self.size = size
        self.things = things
        self.texts = 0
        self.is_terminal = sys.stderr.isatty()
        self.start = self.shown = time.monotonic()

    def update(self, texts: int, bytes_read: int) -> None:
        """Add `texts` to the count, and print a line if one is due; `bytes_read` is the total so far."""
        now = time.monotonic()
        self.texts += texts
        if not self.is_terminal and now - self.shown < self.SECONDS_BETWEEN_LINES:
            return
        self.shown = now
        line = f"{self.texts:,} {self.things}, {self.texts / (now - self.start):,.0f} {self.things}/s"
        if self.size and bytes_read:
            line += f", ETA {format_duration((now - self.start) / bytes_read * (self.size - bytes_read))}"
        print(
            f"\r{line}\x1b[K" if self.is_terminal else line,
            end="" if self.is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def finish(self, line: str) -> None:
        """Print a last line, with the overall rate."""
        rate = self.texts / max(time.monotonic() - self.start, 1e-9)
        start = "\r\x1b[K" if self.is_terminal else ""
        print(f"{start}{line}, {rate:,.0f} {self.things}/s", file=sys.stderr, flush=True)


def print_status(line: str) -> None:
    """Print a line and flush, so that a log file has it at once."""
    print(line, flush=True)


def warn(line: str) -> None:
    """Print a warning line to standard error."""
    print(f"warning: {terminal.printable(line)}", file=sys.stderr, flush=True)
