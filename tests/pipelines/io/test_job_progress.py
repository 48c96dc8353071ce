"""Test the counts of unfinished work of threads and processes, and the progress report of a running job."""

import subprocess
import sys
import threading

import pytest
from apache_beam.io.filesystem import BeamIOError

from beambert.pipelines.io import job_progress
from beambert.pipelines.io.atomic_files import list_files
from beambert.pipelines.io.job_progress import (
    READING,
    WRITING,
    Count,
    Stage,
    WorkCounter,
    collect_counts,
    descriptors,
    report_progress,
    sizes,
)

STAGE = Stage("Corpus", 4000, "documents", write_cost=1.0, shards=["a.parquet", "b.parquet"])


class Recorded:
    """A `Progress` that keeps its measurements; `changed` is set at each measurement."""

    def __init__(self, total, **options) -> None:
        self.measurements: list[tuple[float, list[str]]] = []
        self.changed = threading.Event()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def update(self, done, parts):
        self.measurements.append((done, parts))
        self.changed.set()

    def wait(self):
        self.changed.clear()
        assert self.changed.wait(10)
        self.changed.clear()
        assert self.changed.wait(10)
        return self.measurements[-1]


@pytest.fixture
def recorded(monkeypatch):
    progress = Recorded(1)
    monkeypatch.setattr("beambert.common.progress.Progress", lambda total: progress)
    monkeypatch.setattr(job_progress, "_SECONDS_BETWEEN_POLLS", 0.01)
    monkeypatch.setattr(job_progress, "_SECONDS_BETWEEN_LISTINGS", 0.01)
    return progress


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 999, "0 of 999 bytes"),
        (400_000, 12_500_000, "0.4 of 12.5 MB"),
        (178e6, 467e6, "178 of 467 MB"),
        (5e9, 2e9, "2.0 of 2.0 GB"),
    ],
)
def test_sizes_have_one_unit(done, total, text):
    assert sizes(done, total) == text


def test_local_work_is_counted_within_a_file(recorded):
    with report_progress(STAGE):
        counter = WorkCounter(READING, 4000)
        counter._next = 0
        counter.add(20, 1000)
        done, parts = recorded.wait()
        assert (done, parts[:2]) == (0.125, ["Corpus 1.0 of 4.0 kB", "20 documents"])
        counter.finish(80)
        WorkCounter(WRITING, 1).finish()
        done, parts = recorded.wait()
        assert (done, parts[:2]) == (0.75, ["Corpus 1 of 2 shards", "80 documents"])
    assert recorded.measurements[-1][0] == 1.0


def test_a_failed_job_is_not_complete(recorded):
    with pytest.raises(ValueError, match="no"), report_progress(STAGE):
        raise ValueError("no")
    assert all(done < 1 for done, _ in recorded.measurements)


def test_a_cluster_is_measured_by_its_files(recorded, tmp_path, monkeypatch):
    """Test a directory whose name is a pattern, foreign files, and a listing that fails."""
    folder = tmp_path / "work[1]"
    folder.mkdir()
    listings = []

    def fail_once(pattern):
        listings.append(pattern)
        if len(listings) == 3:
            raise BeamIOError("the service is unavailable")
        return list_files(pattern)

    monkeypatch.setattr(job_progress, "list_files", fail_once)
    with report_progress(STAGE, f"{folder}/*.parquet"):
        for name in ("a.parquet", "other.parquet"):
            (folder / name).touch()
        assert recorded.wait() == (0.5, ["Corpus 1 of 2 shards"])
        while len(listings) < 4:
            assert recorded.wait() == (0.5, ["Corpus 1 of 2 shards"])


@pytest.fixture
def every_record(monkeypatch):
    monkeypatch.setattr(job_progress, "_SECONDS_BETWEEN_RECORDS", 0)


def test_progress_within_a_piece_of_work_is_counted_and_completed(every_record):
    with collect_counts() as read_counts:
        counter = WorkCounter(READING, 100)
        counter.add(1, 30)
        counter.add(1, 20)  # The position of a reader may go back.
        assert read_counts() == (Count(30, 2), Count())
        counter.add(1, 170)
        assert read_counts()[READING] == Count(100, 3)
        counter.finish(5)
        WorkCounter(WRITING, 1).finish()
        assert read_counts() == (Count(100, 5), Count(1, 0))
        assert read_counts() == (Count(100, 5), Count(1, 0))


def test_records_are_written_at_intervals(monkeypatch):
    monkeypatch.setattr(job_progress, "_SECONDS_BETWEEN_RECORDS", 1000)
    with collect_counts() as read_counts:
        counter = WorkCounter(READING, 100)
        counter.add(1, 30)
        assert read_counts()[READING] == Count()
        counter.finish(2)
        assert read_counts()[READING] == Count(100, 2)


def test_a_worker_process_adds_to_the_counts(every_record):
    code = (
        "import sys; from beambert.pipelines.io.job_progress import *; use(int(sys.argv[1])); "
        "c = WorkCounter(READING, 9); c.finish(4)"
    )
    with collect_counts() as read_counts:
        (descriptor,) = descriptors()
        subprocess.run([sys.executable, "-c", code, str(descriptor)], pass_fds=[descriptor], check=True)
        assert read_counts()[READING] == Count(9, 4)


def test_without_a_reader_nothing_is_written(every_record):
    assert descriptors() == []
    WorkCounter(READING, 9).finish(4)
