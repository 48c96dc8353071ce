"""Counts of unfinished work, which the workers on this machine add while they read and write.

Beam's local runner reports metrics only after a bundle, which may be the whole job. Instead, all workers append to a
file without a name, which disappears with the processes that have it open. Results never depend on these counts.
"""

import fcntl
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_VARIABLE = "BEAMBERT_LIVE_COUNTS"
# Kind of the work, amount of work, number of items; native byte order, because all processes are on one machine.
_RECORD = struct.Struct("=Bdq")
_SECONDS_BETWEEN_RECORDS = 0.5
READING, WRITING = range(2)
# Descriptor of the file, in a worker process the inherited one. It is removed from the environment, because other
# programs that a worker starts do not inherit the descriptor.
_descriptor = int(os.environ.pop(_VARIABLE, "-1"))


class Count(NamedTuple):
    """Amount of finished work in any unit, and number of finished documents or examples."""

    work: float = 0.0
    items: int = 0


class LiveCounts:
    """The counts of all workers of a job."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._offset = descriptor, 0
        self._counts = [Count(), Count()]

    def read(self) -> tuple[Count, Count]:
        """Return what was read and written so far."""
        size = os.fstat(self._descriptor).st_size - self._offset
        records = os.pread(self._descriptor, size - size % _RECORD.size, self._offset)
        self._offset += len(records)
        for kind, work, items in _RECORD.iter_unpack(records):
            before = self._counts[kind]
            self._counts[kind] = Count(before.work + work, before.items + items)
        reading, writing = self._counts
        return reading, writing


@contextmanager
def collect_counts() -> Iterator[LiveCounts]:
    """Yield the counts of the workers that run in this process, or are started by it, during the body."""
    global _descriptor
    with tempfile.TemporaryFile(buffering=0) as file:
        previous, _descriptor = _descriptor, file.fileno()
        fcntl.fcntl(_descriptor, fcntl.F_SETFL, os.O_APPEND)
        try:
            yield LiveCounts(_descriptor)
        finally:
            _descriptor = previous


def inherited() -> tuple[dict[str, str], tuple[int, ...]]:
    """Return the environment variables and the descriptors with which a worker process adds to the counts."""
    return ({_VARIABLE: str(_descriptor)}, (_descriptor,)) if _descriptor >= 0 else ({}, ())


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
