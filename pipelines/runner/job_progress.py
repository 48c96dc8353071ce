"""Report the progress of a stage by the files it has written, on any runner whose output can be listed."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from beambert_common.durations import format_duration
from pipelines.io.atomic_files import list_files

_SECONDS_BETWEEN_POLLS = 0.5
# In an object store, a listing costs one or more requests.
_SECONDS_BETWEEN_REMOTE_POLLS = 5.0
# Maximum fraction of the time spent on listing, because a listing of many files takes minutes.
_MAX_POLLING_FRACTION = 0.1
_SECONDS_BETWEEN_LINES = 10.0
# Minimum times for meaningful rates: from the first file, and from the start of the stage (workers start up).
_MIN_SECONDS = 2.0
_MIN_SECONDS_FROM_START = 10.0


class Stage(NamedTuple):
    """A stage of a job, and the files by which its progress is measured.

    Attributes:
        label: Name of the stage, as printed.
        pattern: Directory and name pattern of the files that the stage writes, as for `list_files`.
        costs: Amount of work of each file by file name, in any unit.
        unit: Plural noun for the files, as printed.
        amounts: Function from a path to the amounts whose rates are printed, by unit: {"MB/s": 2.5} for 2.5 MB.
    """

    label: str
    pattern: str
    costs: dict[str, float]
    unit: str
    amounts: Callable[[str], dict[str, float]] = lambda path: {}  # noqa: ARG005


class Measurement(NamedTuple):
    """The state of a stage at one time.

    Attributes:
        seconds: Seconds since the stage began.
        files: Number of files written.
        cost: Sum of their costs.
        amounts: Sums of their amounts by unit.
        last_change: Value of `seconds` at the last measurement that found a new file.
        duration: Seconds that the measurement took.
    """

    seconds: float
    files: int
    cost: float
    amounts: dict[str, float]
    last_change: float
    duration: float = 0.0


@contextmanager
def watch_files(stage: Stage) -> Iterator[None]:
    """Print finished work, its rate and the remaining time while the body runs.

    A terminal shows a live bar. Other outputs get a line at the first progress and then at intervals.
    """
    stop = threading.Event()
    report = _report_live if sys.stderr.isatty() else _report_lines
    # The first measurement is the baseline: files of an earlier run do not count for the rate.
    measurements = _measurements(stage)
    thread = threading.Thread(target=report, args=(stage, measurements, [next(measurements)], stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _measurements(stage: Stage) -> Iterator[Measurement]:
    """Yield a new measurement at each step; the amounts of a file are read once."""
    start = time.monotonic()
    seen: set[str] = set()
    cost, total, last_change = 0.0, Counter[str](), 0.0
    while True:
        seconds = time.monotonic() - start
        try:
            files = list_files(stage.pattern)
        except (BeamIOError, OSError):
            files = []  # The measurement stays as it is; the next listing includes the files.
        for file in files:
            name = file.path.rsplit("/", 1)[-1]
            if name in stage.costs and name not in seen:
                seen.add(name)
                last_change = seconds
                cost += stage.costs[name]
                total.update(stage.amounts(file.path))
        yield Measurement(seconds, len(seen), cost, dict(total), last_change, time.monotonic() - start - seconds)


def describe(stage: Stage, measurements: list[Measurement]) -> str:
    """Return the progress of a stage as text: finished work, rates and the remaining time.

    Rates are computed from the first file, to exclude worker start-up, or from the start of the stage if the second
    file takes long.

    Args:
        stage: The monitored stage.
        measurements: The baseline, the first measurement with a new file, and the latest; the last two may be the
            same or missing.
    """
    last = measurements[-1]
    parts = [f"{last.files:,} of {len(stage.costs):,} {stage.unit}"]
    since = _rate_start(measurements)
    if since and last.files < len(stage.costs):
        seconds, waited = last.last_change - since.seconds, last.seconds - last.last_change
        for unit, amount in last.amounts.items():
            rate = float(f"{(amount - since.amounts.get(unit, 0)) / seconds:.2g}")
            parts.append(f"{rate:,.{0 if rate >= 10 else 1}f} {unit}")
        left = (sum(stage.costs.values()) - last.cost) * seconds / (last.cost - since.cost)
        # Count down between two files, unless the next one is long overdue.
        left = left - waited if waited < left / 2 else left * (seconds + waited) / seconds
        parts.append(f"about {format_duration(left)} left")
    return ", ".join(parts)


def _rate_start(measurements: list[Measurement]) -> Measurement | None:
    """Return the measurement from which rates are computed, or None if it is too early for rates."""
    first, last = measurements[0], measurements[-1]
    appeared = next((later for later in measurements if later.cost > first.cost), None)
    if appeared is None:
        return None
    if last.cost > appeared.cost and last.last_change - appeared.seconds >= _MIN_SECONDS:
        return appeared
    return first if last.last_change - first.seconds >= _MIN_SECONDS_FROM_START else None


def pause(stage: Stage, measurement: Measurement) -> float:
    """Return the seconds to wait before the next measurement of a stage."""
    shortest = _SECONDS_BETWEEN_REMOTE_POLLS if "://" in stage.pattern else _SECONDS_BETWEEN_POLLS
    return max(shortest, measurement.duration * (1 - _MAX_POLLING_FRACTION) / _MAX_POLLING_FRACTION)


def _wait(stage: Stage, measurements: Iterator[Measurement], history: list[Measurement], stop: threading.Event) -> bool:
    """Wait and append the next measurement to the history for `describe`; return False when the stage has ended."""
    if stop.wait(pause(stage, history[-1])):
        return False
    measurement = next(measurements)
    if len(history) < 2 or history[1].cost == history[0].cost:
        del history[1:]
    else:
        del history[2:]
    history.append(measurement)
    return True


def _report_live(
    stage: Stage, measurements: Iterator[Measurement], history: list[Measurement], stop: threading.Event
) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(stage.label, total=sum(stage.costs.values()), text=describe(stage, history))
        while _wait(stage, measurements, history, stop):
            progress.update(task, completed=history[-1].cost, text=describe(stage, history))


def _report_lines(
    stage: Stage, measurements: Iterator[Measurement], history: list[Measurement], stop: threading.Event
) -> None:
    last_report = 0.0
    while _wait(stage, measurements, history, stop):
        seconds = history[-1].seconds
        if (not last_report and _rate_start(history)) or seconds - last_report >= _SECONDS_BETWEEN_LINES:
            last_report = seconds
            print(f"{stage.label}: {describe(stage, history)}", file=sys.stderr, flush=True)
