"""Shows how far a stage has come by the files it has finished; works for every engine that writes where we can look."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from apache_beam.io.filesystems import FileSystems
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def watch_files(label: str, pattern: str, total: int, unit: str) -> Iterator[None]:
    """Reports the number of files matching `pattern` against `total` while the body runs.

    A terminal gets a live bar with elapsed and remaining time, anything else a plain line now and then.
    """
    stop = threading.Event()
    report = _report_live if sys.stderr.isatty() else _report_lines
    thread = threading.Thread(target=report, args=(label, pattern, total, unit, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _count(pattern: str) -> int:
    return len(FileSystems.match([pattern])[0].metadata_list)


def _report_live(label: str, pattern: str, total: int, unit: str, stop: threading.Event) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        while not stop.wait(0.5):
            progress.update(task, completed=_count(pattern))


def _report_lines(label: str, pattern: str, total: int, unit: str, stop: threading.Event) -> None:
    start = time.monotonic()
    while not stop.wait(_SECONDS_BETWEEN_LINES):
        done, elapsed = _count(pattern), time.monotonic() - start
        left = f", about {elapsed / done * (total - done):.0f} s left" if 0 < done < total else ""
        print(f"{label}: {done} of {total} {unit} after {elapsed:.0f} s{left}", file=sys.stderr, flush=True)
