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
# Of very many files a look takes minutes; it is to be no more than this share of the time.
_SHARE_OF_LOOKING = 0.1
_SECONDS_BETWEEN_LINES = 10.0
# Rates over less than this say little; where the start of the workers counts too, over less than that.
_LEAST_SECONDS = 2.0
_LEAST_SECONDS_FROM_START = 10.0


class Stage(NamedTuple):
    """What is watched.

    Attributes:
        label: what the stage is called.
        pattern: the files that appear as it goes on.
        costs: how much work each of them stands for, by file name, in any unit.
        unit: what the files are.
        amounts: path -> what is to be told of a file as so much a second, by unit, such as {"MB/s": 2.5} for 2.5 MB.
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
        amounts: theirs, added up.
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
    """Reports what is finished, how fast it goes and when it will be over, while the body runs.

    A terminal gets a live bar, anything else a plain line as soon as there is something to tell and then now and then.
    """
    stop = threading.Event()
    report = _report_live if sys.stderr.isatty() else _report_lines
    # What an earlier run has finished says nothing of how fast this one is.
    looks = _looks(stage)
    thread = threading.Thread(target=report, args=(stage, looks, [next(looks)], stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _looks(stage: Stage) -> Iterator[Look]:
    """Looks at the files whenever the next look is asked for; each file is measured once."""
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
    """What to say after some looks at a stage: what is finished, rates, and the time that is left.

    Rates are those since the first file appeared, so that the start of the workers does not count, or since the stage
    began where no more than that has come for long.

    Args:
        stage: what is watched.
        looks: the one before the stage began, the one that saw the first file since, and the latest; some of them may
            be the same or not be there yet.
    """
    last = looks[-1]
    told = [f"{last.files:,} of {len(stage.costs):,} {stage.unit}"]
    since = _since(looks)
    if since and last.files < len(stage.costs):
        seconds, waited = last.grown - since.seconds, last.seconds - last.grown
        for unit, amount in last.amounts.items():
            rate = float(f"{(amount - since.amounts.get(unit, 0)) / seconds:.2g}")
            told.append(f"{rate:,.{0 if rate >= 10 else 1}f} {unit}")
        left = (sum(stage.costs.values()) - last.cost) * seconds / (last.cost - since.cost)
        # Between one file and the next the time left runs down, unless the next one is long overdue.
        left = left - waited if waited < left / 2 else left * (seconds + waited) / seconds
        told.append(f"about {format_duration(left)} left")
    return ", ".join(told)


def _since(looks: list[Look]) -> Look | None:
    """From which look on rates are to be reckoned; None while it is too early for that."""
    first, last = looks[0], looks[-1]
    appeared = next((look for look in looks if look.cost > first.cost), None)
    if appeared is None:
        return None
    if last.cost > appeared.cost and last.grown - appeared.seconds >= _LEAST_SECONDS:
        return appeared
    return first if last.grown - first.seconds >= _LEAST_SECONDS_FROM_START else None


def pause(stage: Stage, look: Look) -> float:
    """Seconds to wait between a look at a stage and the next."""
    usual = _SECONDS_BETWEEN_LOOKS_AT_OBJECT_STORES if "://" in stage.pattern else _SECONDS_BETWEEN_LOOKS
    return max(usual, look.took * (1 - _SHARE_OF_LOOKING) / _SHARE_OF_LOOKING)


def _wait(stage: Stage, looks: Iterator[Look], found: list[Look], stop: threading.Event) -> bool:
    """Waits, then looks once more and keeps what `describe` needs; False when the stage is over."""
    if stop.wait(pause(stage, found[-1])):
        return False
    look = next(looks)
    if len(found) < 2 or found[1].cost == found[0].cost:
        del found[1:]
    else:
        del found[2:]
    found.append(look)
    return True


def _report_live(stage: Stage, looks: Iterator[Look], found: list[Look], stop: threading.Event) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(stage.label, total=sum(stage.costs.values()), text=describe(stage, found))
        while _wait(stage, looks, found, stop):
            progress.update(task, completed=found[-1].cost, text=describe(stage, found))


def _report_lines(stage: Stage, looks: Iterator[Look], found: list[Look], stop: threading.Event) -> None:
    told = 0.0
    while _wait(stage, looks, found, stop):
        seconds = found[-1].seconds
        if (not told and _since(found)) or seconds - told >= _SECONDS_BETWEEN_LINES:
            told = seconds
            print(f"{stage.label}: {describe(stage, found)}", file=sys.stderr, flush=True)
