"""Test the counts of unfinished work, of threads of this process and of processes that it starts."""

import os
import subprocess
import sys

import pytest

from beambert.pipelines.io import live_counts
from beambert.pipelines.io.live_counts import READING, WRITING, Count, WorkCounter, collect_counts, inherited


@pytest.fixture(autouse=True)
def every_record(monkeypatch):
    monkeypatch.setattr(live_counts, "_SECONDS_BETWEEN_RECORDS", 0)


def test_progress_within_a_piece_of_work_is_counted_and_completed():
    with collect_counts() as counts:
        counter = WorkCounter(READING, 100)
        counter.add(1, 30)
        counter.add(1, 20)  # The position of a reader may go back.
        assert counts.read() == (Count(30, 2), Count())
        counter.add(1, 170)
        assert counts.read()[READING] == Count(100, 3)
        counter.finish(5)
        WorkCounter(WRITING, 1).finish()
        assert counts.read() == (Count(100, 5), Count(1, 0))
        assert counts.read() == (Count(100, 5), Count(1, 0))


def test_records_are_written_at_intervals(monkeypatch):
    monkeypatch.setattr(live_counts, "_SECONDS_BETWEEN_RECORDS", 1000)
    with collect_counts() as counts:
        counter = WorkCounter(READING, 100)
        counter.add(1, 30)
        assert counts.read()[READING] == Count()
        counter.finish(2)
        assert counts.read()[READING] == Count(100, 2)


def test_a_worker_process_adds_to_the_counts():
    code = (
        "import os; from beambert.pipelines.io.live_counts import *; c = WorkCounter(READING, 9); c.finish(4); "
        "assert not [name for name in os.environ if 'LIVE_COUNTS' in name]"
    )
    with collect_counts() as counts:
        variables, descriptors = inherited()
        workers = [
            subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}, pass_fds=descriptors)
            for _ in range(2)
        ]
        assert [worker.wait() for worker in workers] == [0, 0]
        assert counts.read()[READING] == Count(18, 8)


def test_without_a_reader_nothing_is_written():
    assert inherited() == ({}, ())
    WorkCounter(READING, 9).finish(4)
