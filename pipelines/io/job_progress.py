"""Measure and show the progress of a data job: counts of local workers, or files that a cluster has written.

Beam's local runner reports metrics only after a bundle, which may be the whole job. Instead, all workers append to a
file without a name, which disappears with the processes that have it open. Results never depend on these counts.
"""

import fcntl
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError

from beambert.pipelines.io.atomic_files import list_files

# Kind of the work, amount of work, number of items; native byte order, because all processes are on one machine.
_RECORD = struct.Struct("=Bdq")
_SECONDS_BETWEEN_RECORDS = 0.5
_SECONDS_BETWEEN_POLLS = 0.5
# A listing costs one or more requests.
_SECONDS_BETWEEN_LISTINGS = 5.0
_UNITS = ((9, "GB"), (6, "MB"), (3, "kB"), (0, "bytes"))
READING, WRITING = range(2)
# Descriptor of the file.
_descriptor = -1


class Count(NamedTuple):
    """Amount of finished work in any unit, and number of finished documents or examples."""

    work: float = 0.0
    items: int = 0


class Stage(NamedTuple):
    """A stage of a job.

    Attributes:
        label: Name of the stage, as printed.
        read_bytes: Bytes of the input that the stage reads.
        items: Plural noun for what it counts, such as "documents".
        write_cost: Time of writing as a fraction of the time of reading.
        shards: Names of the files that it writes, shards or their markers; each is one unit of work.
    """

    label: str
    read_bytes: float
    items: str
    write_cost: float = 0.0
    shards: Sequence[str] = ()


@contextmanager
def collect_counts() -> Iterator[Callable[[], tuple[Count, Count]]]:
    """Yield a function that returns what was read and written so far during the body.

    It counts the workers that run in this process or are started by it.
    """
    global _descriptor
    counts, offset = [Count(), Count()], 0
    with tempfile.TemporaryFile(buffering=0) as file:

        def read_counts() -> tuple[Count, Count]:
            nonlocal offset
            size = os.fstat(file.fileno()).st_size - offset
            records = os.pread(file.fileno(), size - size % _RECORD.size, offset)
            offset += len(records)
            for kind, work, items in _RECORD.iter_unpack(records):
                counts[kind] = Count(counts[kind].work + work, counts[kind].items + items)
            return counts[READING], counts[WRITING]

        previous, _descriptor = _descriptor, file.fileno()
        fcntl.fcntl(_descriptor, fcntl.F_SETFL, os.O_APPEND)
        try:
            yield read_counts
        finally:
            _descriptor = previous


def descriptors() -> list[int]:
    """Return the descriptor of the counts, with which a worker process calls `use`; empty outside `collect_counts`."""
    return [_descriptor] if _descriptor >= 0 else []


def use(descriptor: int = -1) -> None:
    """Add to the counts of the main process from now on.

    Args:
        descriptor: That of the main process, in this worker process.
    """
    global _descriptor
    _descriptor = descriptor


class WorkCounter:
    """Add the progress of a file split or shard to the counts, at most twice a second.

    Args:
        kind: READING or WRITING.
        total: amount of the work.
    """

    def __init__(self, kind: int, total: float) -> None:
        self._kind, self.total = kind, total
        self._items, self._done = 0, 0.0
        self._recorded_items = 0
        self._next = time.monotonic() + _SECONDS_BETWEEN_RECORDS

    def add(self, items: int, done: float) -> None:
        """Add finished items; `done` is the amount of this work that is finished."""
        self._items += items
        if time.monotonic() >= self._next:
            self._record(min(done, self.total))

    def finish(self, items: int = 0) -> None:
        """Record the rest of the work; `items` is the number of all its items."""
        self._items = items - self._recorded_items
        self._record(self.total)

    def _record(self, done: float) -> None:
        self._next = time.monotonic() + _SECONDS_BETWEEN_RECORDS
        if _descriptor < 0 or (done <= self._done and not self._items):
            return
        with suppress(OSError):
            os.write(_descriptor, _RECORD.pack(self._kind, max(done - self._done, 0.0), self._items))
        self._recorded_items += self._items
        self._done, self._items = max(done, self._done), 0


@contextmanager
def report_progress(stage: Stage, pattern: str = "") -> Iterator[None]:
    """Show the progress of a stage while the body runs.

    Args:
        stage: The stage.
        pattern: Directory and name pattern of the shards, as for `list_files`, for a job on a cluster; "" for a job on
            this machine, whose workers are counted.
    """
    # Imported late: workers, which only count, show nothing.
    from beambert.common.progress import Progress

    start, stop, written = time.monotonic(), threading.Event(), set[str]()

    def measure() -> tuple[float, list[str]]:
        """Return the finished fraction and the parts of the progress line."""
        if not pattern:
            return _counted_work(stage, *read_counts(), time.monotonic() - start)
        # After an error, the next listing includes the files.
        with suppress(BeamIOError, OSError):
            written.update({file.path.rsplit("/", 1)[-1] for file in list_files(pattern)}.intersection(stage.shards))
        done, total = len(written), len(stage.shards)
        return done / max(total, 1), [f"{stage.label} {done:,} of {total:,} shards"]

    def poll() -> None:
        while not stop.wait(_SECONDS_BETWEEN_LISTINGS if pattern else _SECONDS_BETWEEN_POLLS):
            progress.update(*measure())

    with collect_counts() as read_counts, Progress(1.0) as progress:
        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        progress.update(1.0, measure()[1])


def _counted_work(stage: Stage, reading: Count, writing: Count, seconds: float) -> tuple[float, list[str]]:
    """Return the finished fraction of a stage and the parts of its progress line, by the counts of its workers."""
    read, written = reading.work / max(stage.read_bytes, 1), writing.work / max(len(stage.shards), 1)
    work = sizes(reading.work, stage.read_bytes)
    if read >= 1 and stage.write_cost:
        work = f"{writing.work:,.0f} of {len(stage.shards):,} shards"
    parts = [f"{stage.label} {work}", f"{reading.items:,} {stage.items}"]
    if reading.items:
        parts.append(f"{reading.items / max(seconds, 1e-9):,.0f} {stage.items}/s")
    return (read + stage.write_cost * written) / (1 + stage.write_cost), parts


def sizes(done: float, total: float) -> str:
    """Return two sizes in bytes in the unit of the larger one, such as "0.4 of 12.5 MB"."""
    power, unit = next((power, unit) for power, unit in _UNITS if total >= 10**power or not power)
    form = ",.1f" if power and total < 100 * 10**power else ",.0f"
    return f"{min(done, total) / 10**power:{form}} of {total / 10**power:{form}} {unit}"
