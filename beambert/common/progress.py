"""Show the progress of a stage of a command: a live line with a bar on a terminal, plain lines elsewhere."""

import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from beambert.common.formatting import format_duration
from beambert.common.terminal import MAX_COLUMNS, printable_lines, unfiltered

BAR, ASCII_BAR = "━─", "#-"
_BAR_COLUMNS = range(6, 31)
_SECONDS_BETWEEN_UPDATES = 0.1
_SECONDS_BETWEEN_LINES = 30.0
# The remaining time follows the rate of the last seconds, sampled once a second.
_RATE_SECONDS = 30.0
_SAMPLE_SECONDS = 1.0


class TextConsole(Console):
    """stdout or stderr with styles and live lines of rich, whose text has no control characters.

    Args:
        stderr: whether to print to stderr rather than stdout.
        options: options of `rich.console.Console`.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(file=unfiltered(sys.stderr if stderr else sys.stdout), highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of an object; those of text without control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))


def progress_line(
    parts: Sequence[str], columns: int = MAX_COLUMNS, fraction: float | None = None, bar: str = BAR
) -> str:
    """Return a line of at most `columns` and at most 100 columns.

    Args:
        parts: parts of the line, most important first; the last ones are left out if they do not fit.
        columns: width of the terminal.
        fraction: finished fraction of the work, for a bar after the first part; None for a line without a bar.
        bar: character of finished work, and of remaining work.
    """
    columns = min(columns, MAX_COLUMNS)
    ends = itertools.accumulate(len(part) + 2 for part in parts)
    fitting = list(parts[: max(1, sum(end - 2 <= columns for end in ends))])
    room = min(columns - sum(len(part) + 2 for part in fitting), _BAR_COLUMNS.stop - 1)
    if fraction is not None and room >= _BAR_COLUMNS.start:
        finished = round(room * min(max(fraction, 0.0), 1.0))
        fitting.insert(1, bar[0] * finished + bar[1] * (room - finished))
    return "  ".join(fitting)[:columns]


def remaining(seconds: float) -> str:
    """Return a remaining time, such as "ETA 48 s" or "ETA 3 min"."""
    return f"ETA {seconds:.0f} s" if seconds < 99.5 else f"ETA {format_duration(60 * round(seconds / 60))}"


class Progress:
    """Show the progress of a stage; use as a context manager.

    A terminal shows a live line, whose last state stays after a stage that succeeds. Elsewhere a line is printed at the
    first update, then after every tenth of the work and at least every 30 seconds.

    Args:
        total: amount of work in any unit; None if unknown.
        stdout: whether to print to stdout rather than stderr.
        quiet_seconds: seconds before the first plain line, so that a log has no lines of a short stage.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        total: float | None,
        *,
        stdout: bool = False,
        quiet_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._clock = total, clock
        # Without colors, lines that others print while the live line is shown cannot have styles or links either.
        self._console = TextConsole(stderr=not stdout, color_system=None)
        self._bar = ASCII_BAR if self._console.options.ascii_only else BAR
        is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if is_live else None
        self._start = clock()
        self._quiet_until = self._start if is_live else self._start + quiet_seconds
        self._shown_at, self._shown_done = -math.inf, 0.0
        self._last_parts: Sequence[str] = ()
        self._samples: deque[tuple[float, float]] = deque()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._live:
            return
        self._live.stop()
        if error is None and self._last_parts:
            self._print([*self._last_parts, f"in {format_duration(self._clock() - self._start)}"])

    def is_due(self, done: float) -> bool:
        """Return whether to show the progress now.

        Args:
            done: amount of finished work.
        """
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, done))
            while len(self._samples) > 2 and now - self._samples[1][0] > _RATE_SECONDS:
                self._samples.popleft()
        if self._live:
            return now - self._shown_at >= _SECONDS_BETWEEN_UPDATES or self._is_finished(done)
        is_next_tenth = self._total is not None and int(10 * done / self._total) > int(
            10 * self._shown_done / self._total
        )
        return now >= self._quiet_until and (is_next_tenth or now - self._shown_at >= _SECONDS_BETWEEN_LINES)

    def show(self, done: float, parts: Sequence[str], seconds_left: float | None = None) -> None:
        """Show the progress.

        Args:
            done: amount of finished work.
            parts: parts of the line, most important first; the remaining time is inserted after the first.
            seconds_left: remaining time; None to estimate it from the work of the last 30 seconds.
        """
        self._shown_at, self._shown_done, self._last_parts = self._clock(), done, parts
        if seconds_left is None:
            seconds_left = self._seconds_left(done)
        if seconds_left is not None and not self._is_finished(done):
            parts = [parts[0], remaining(seconds_left), *parts[1:]]
        if self._live:
            fraction = done / self._total if self._total else None
            line = progress_line(parts, self._console.width, fraction, self._bar)
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            self._print(parts)

    def update(self, done: float, parts: Sequence[str]) -> None:
        """Show the progress if it is due."""
        if self.is_due(done):
            self.show(done, parts)

    def finish(self, line: str) -> None:
        """Replace the last state of the live line by a final line."""
        self._last_parts = ()
        if self._live:
            self._live.stop()
        self._print_line(line)

    def seconds(self) -> float:
        """Return the seconds since the start of the stage, more than 0."""
        return max(self._clock() - self._start, 1e-9)

    def _is_finished(self, done: float) -> bool:
        return self._total is not None and done >= self._total

    def _seconds_left(self, done: float) -> float | None:
        """Return the remaining time at the recent rate; None if it is unknown."""
        if self._total is None or not self._samples:
            return None
        time_before, done_before = self._samples[0]
        if done <= done_before:
            return None
        return (self._total - done) * (self._clock() - time_before) / (done - done_before)

    def _print(self, parts: Sequence[str]) -> None:
        columns = self._console.width if self._live else MAX_COLUMNS
        self._print_line(progress_line(parts, columns))

    def _print_line(self, line: str) -> None:
        print(printable_lines(line), file=self._console.file, flush=True)


class TextProgress(Progress):
    """Show the number of processed texts and their rate on stderr; use as a context manager.

    Args:
        size: size of the input in bytes, or in any other unit of work; None if unknown.
        things: name of the processed things, in the plural.
    """

    def __init__(self, size: int | None, things: str = "texts") -> None:
        super().__init__(size or None)
        self._things = things
        self.texts = 0

    def add(self, texts: int, bytes_read: int) -> None:
        """Add `texts` to the count; `bytes_read` is the total so far."""
        self.texts += texts
        self.update(bytes_read, [f"{self.texts:,} {self._things}", self._rate()])

    def finish(self, line: str) -> None:
        """Print a last line, with the overall rate."""
        super().finish(f"{line}, {self._rate()}")

    def _rate(self) -> str:
        return f"{self.texts / self.seconds():,.0f} {self._things}/s"
