"""Shows how far a stage has come by the files it has finished; works for every engine that writes where we can look."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from apache_beam.io.filesystems import FileSystems
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from beambert_common.durations import format_duration

_SECONDS_BETWEEN_LOOKS = 0.5
# A listing there is a request or several.
_SECONDS_BETWEEN_LOOKS_AT_OBJECT_STORES = 5.0
# A measurement of many files takes minutes; it may take at most this share of the time.
_SHARE_OF_LOOKING = 0.1
_SECONDS_BETWEEN_LINES = 10.0
# Rates over less than this say little; where the start of the workers counts too, over less than that.
_LEAST_SECONDS = 2.0
_LEAST_SECONDS_FROM_START = 10.0


class Stage(NamedTuple):
    """What is watched.

    Attributes:
        label: what the stage is called.
        pattern: the files that appear during the stage.
        costs: amount of work of each file, by file name, in any unit.
        unit: name of the files.
        amounts: path -> amounts of a file whose rates are printed, by unit, such as {"MB/s": 2.5} for 2.5 MB.
    """

    label: str
    pattern: str
    costs: dict[str, float]
    unit: str
    amounts: Callable[[str], dict[str, float]] = lambda path: {}  # noqa: ARG005


class Look(NamedTuple):
    """What there was at some time.

    Attributes:
        seconds: since the stage began.
        files: how many of them.
        cost: their work.
        amounts: sums of their amounts.
        grown: seconds at the look that found the latest of them.
        took: seconds that the look itself took.
    """

    seconds: float
    files: int
    cost: float
    amounts: dict[str, float]
    grown: float
    took: float = 0.0


@contextmanager
def watch_files(stage: Stage) -> Iterator[None]:
    """Report finished work, its rate and the remaining time while the body runs.

    A terminal gets a live bar, other output a plain line at the first progress and then at intervals.
    """
    stop = threading.Event()
    report = _report_live if sys.stderr.isatty() else _report_lines
    # What an earlier run has finished says nothing of how fast this one is.
    looks = _measurements(stage)
    thread = threading.Thread(target=report, args=(stage, looks, [next(looks)], stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _measurements(stage: Stage) -> Iterator[Look]:
    """Yield a measurement of the files on request; each file is measured once."""
    start = time.monotonic()
    seen: set[str] = set()
    cost, total, grown = 0.0, Counter[str](), 0.0
    while True:
        seconds = time.monotonic() - start
        for file in FileSystems.match([stage.pattern])[0].metadata_list:
            name = file.path.rsplit("/", 1)[-1]
            if name in stage.costs and name not in seen:
                seen.add(name)
                grown = seconds
                cost += stage.costs[name]
                total.update(stage.amounts(file.path))
        yield Look(seconds, len(seen), cost, dict(total), grown, time.monotonic() - start - seconds)


def describe(stage: Stage, looks: list[Look]) -> str:
    """Return the progress of a stage as text: finished work, rates and the remaining time.

    Rates count from the first file, to exclude the start of the workers, or from the start of the stage if no second
    file has come for long.

    Args:
        stage: the monitored stage.
        looks: the one before the stage began, the one that saw the first file since, and the latest; some of them may
            be the same or not be there yet.
    """
    last = looks[-1]
    parts = [f"{last.files:,} of {len(stage.costs):,} {stage.unit}"]
    since = _rate_start(looks)
    if since and last.files < len(stage.costs):
        seconds, waited = last.grown - since.seconds, last.seconds - last.grown
        for unit, amount in last.amounts.items():
            rate = float(f"{(amount - since.amounts.get(unit, 0)) / seconds:.2g}")
            parts.append(f"{rate:,.{0 if rate >= 10 else 1}f} {unit}")
        left = (sum(stage.costs.values()) - last.cost) * seconds / (last.cost - since.cost)
        # Between one file and the next the time left runs down, unless the next one is long overdue.
        left = left - waited if waited < left / 2 else left * (seconds + waited) / seconds
        parts.append(f"about {format_duration(left)} left")
    return ", ".join(parts)


def _rate_start(looks: list[Look]) -> Look | None:
    """Return the measurement from which rates are computed; None while it is too early."""
    first, last = looks[0], looks[-1]
    appeared = next((look for look in looks if look.cost > first.cost), None)
    if appeared is None:
        return None
    if last.cost > appeared.cost and last.grown - appeared.seconds >= _LEAST_SECONDS:
        return appeared
    return first if last.grown - first.seconds >= _LEAST_SECONDS_FROM_START else None


def pause(stage: Stage, look: Look) -> float:
    """Return the seconds between a measurement of a stage and the next."""
    usual = _SECONDS_BETWEEN_LOOKS_AT_OBJECT_STORES if "://" in stage.pattern else _SECONDS_BETWEEN_LOOKS
    return max(usual, look.took * (1 - _SHARE_OF_LOOKING) / _SHARE_OF_LOOKING)


def _wait(stage: Stage, looks: Iterator[Look], history: list[Look], stop: threading.Event) -> bool:
    """Wait, then measure again and keep what `describe` needs; return False when the stage is over."""
    if stop.wait(pause(stage, history[-1])):
        return False
    look = next(looks)
    if len(history) < 2 or history[1].cost == history[0].cost:
        del history[1:]
    else:
        del history[2:]
    history.append(look)
    return True


def _report_live(stage: Stage, looks: Iterator[Look], history: list[Look], stop: threading.Event) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(stage.label, total=sum(stage.costs.values()), text=describe(stage, history))
        while _wait(stage, looks, history, stop):
            progress.update(task, completed=history[-1].cost, text=describe(stage, history))


def _report_lines(stage: Stage, looks: Iterator[Look], history: list[Look], stop: threading.Event) -> None:
    last_report = 0.0
    while _wait(stage, looks, history, stop):
        seconds = history[-1].seconds
        if (not last_report and _rate_start(history)) or seconds - last_report >= _SECONDS_BETWEEN_LINES:
            last_report = seconds
            print(f"{stage.label}: {describe(stage, history)}", file=sys.stderr, flush=True)
