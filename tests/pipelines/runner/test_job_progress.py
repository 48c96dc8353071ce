"""Test the progress report of a running stage."""

import io
import re
import sys
import time

import pytest
from apache_beam.io.filesystem import BeamIOError

from pipelines.io.atomic_files import list_files
from pipelines.runner.job_progress import Measurement, Stage, describe, pause, watch_files

STAGE = Stage("Stage", "nowhere/*", {str(number): 1.0 for number in range(80)}, "passes")


def measurement(
    seconds: float, files: int, megabytes: float = 0, examples: float = 0, grown: float | None = None
) -> Measurement:
    amounts = {"MB/s": megabytes} | ({"examples/s": examples} if examples else {})
    return Measurement(seconds, files, float(files), amounts, seconds if grown is None else grown)


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        ([measurement(0, 0)], "0 of 80 passes"),
        # One file after nine seconds: most of that time is the start of the workers.
        ([measurement(0, 0), measurement(9, 1, megabytes=10)], "1 of 80 passes"),
        ([measurement(0, 0), measurement(9, 1, megabytes=10), measurement(9.5, 2, megabytes=20)], "2 of 80 passes"),
        (
            [measurement(0, 0), measurement(9, 1, megabytes=10), measurement(11, 5, megabytes=50)],
            "5 of 80 passes, 20 MB/s, about 38 s left",
        ),
        # Half a minute is too long for the start of the workers.
        ([measurement(0, 0), measurement(30, 1, megabytes=10)], "1 of 80 passes, 0.3 MB/s, about 40 min left"),
        # Files of an earlier run count as finished, but not for the rate.
        (
            [
                measurement(0, 40, megabytes=4000),
                measurement(1, 44, megabytes=4400),
                measurement(5, 60, megabytes=6000, examples=98_765),
            ],
            "60 of 80 passes, 400 MB/s, 25,000 examples/s, about 5 s left",
        ),
        ([measurement(0, 0), measurement(1, 1, megabytes=1), measurement(5, 80, megabytes=80)], "80 of 80 passes"),
        (
            [measurement(0, 0), measurement(1, 1, megabytes=1), measurement(7201, 3, megabytes=3)],
            "3 of 80 passes, 0.0 MB/s, about 3.2 days left",
        ),
        # The remaining time counts down until the next file is found, and grows again when that file is overdue.
        (
            [measurement(0, 0), measurement(10, 1, megabytes=9), measurement(60, 41, megabytes=609, grown=50)],
            "41 of 80 passes, 15 MB/s, about 29 s left",
        ),
        (
            [measurement(0, 0), measurement(10, 1, megabytes=9), measurement(90, 41, megabytes=609, grown=50)],
            "41 of 80 passes, 15 MB/s, about 1 min 18 s left",
        ),
    ],
)
def test_rates_and_remaining_time(looks, says):
    assert describe(STAGE, looks) == says


def test_remaining_time_depends_on_costs():
    """Test a stage with two of four files finished, which are small and amount to a tenth of the work."""
    stage = STAGE._replace(costs={"a": 1.0, "b": 1.0, "c": 9.0, "d": 9.0})
    assert describe(
        stage, [Measurement(0, 0, 0, {}, 0), Measurement(1, 1, 1, {}, 1), Measurement(4, 2, 2, {}, 4)]
    ).endswith("about 54 s left")


def test_polling_takes_at_most_a_tenth_of_the_time():
    remote = STAGE._replace(pattern="gs://bucket/notes/*")
    assert pause(STAGE, Measurement(0, 0, 0, {}, 0, duration=0.01)) == 0.5
    assert pause(remote, Measurement(0, 0, 0, {}, 0, duration=0.5)) == 5
    for stage in (STAGE, remote):
        assert pause(stage, Measurement(0, 0, 0, {}, 0, duration=20)) == pytest.approx(180)


@pytest.mark.parametrize("terminal", [False, True])
def test_files_are_watched_and_measured_once(tmp_path, monkeypatch, terminal):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("pipelines.runner.job_progress._SECONDS_BETWEEN_POLLS", 0.02)
    monkeypatch.setattr("pipelines.runner.job_progress._MIN_SECONDS", 0.05)
    (tmp_path / "before.json").write_text("")
    measured = []

    def amounts(path: str) -> dict[str, float]:
        measured.append(path.rsplit("/", 1)[-1])
        return {"MB/s": 1.0}

    costs = {f"{name}.json": 1.0 for name in ("before", "one", "two", "three")}
    with watch_files(Stage("Stage", f"{tmp_path}/*.json", costs, "files", amounts)):
        (tmp_path / "not-ours.json").write_text("")
        for name in ("one", "two"):
            (tmp_path / f"{name}.json").write_text("")
            time.sleep(0.5)
    said = stream.getvalue()
    assert re.search(r"3 of 4 files, [\d.,]+ MB/s, about \d+ s left", said)
    assert sorted(measured) == ["before.json", "one.json", "two.json"]
    if not terminal:
        assert said.startswith("Stage: ")
        assert said.count("\n") == 1


def test_only_files_of_a_directory_like_a_pattern_are_measured(tmp_path):
    for folder in ("work1", "work[1]"):
        (tmp_path / folder).mkdir()
    (tmp_path / "work1" / "other.json").write_text("")
    (tmp_path / "work[1]" / "own.json").write_text("")
    measured = []

    def amounts(path: str) -> dict[str, float]:
        measured.append(path)
        return {}

    costs = {"own.json": 1.0, "other.json": 1.0}
    with watch_files(Stage("Stage", f"{tmp_path}/work[1]/*.json", costs, "files", amounts)):
        pass
    assert measured == [f"{tmp_path}/work[1]/own.json"]


@pytest.mark.parametrize("failing", [0, 1], ids=["the first", "the second"])
def test_a_failed_listing_keeps_the_last_measurement(tmp_path, monkeypatch, capsys, failing):
    monkeypatch.setattr("pipelines.runner.job_progress._SECONDS_BETWEEN_POLLS", 0.02)
    monkeypatch.setattr("pipelines.runner.job_progress._SECONDS_BETWEEN_LINES", 0.1)
    listings = []

    def fail_once(path):
        listings.append(path)
        if len(listings) == failing + 1:
            raise BeamIOError("the service is unavailable")
        return list_files(path)

    monkeypatch.setattr("pipelines.runner.job_progress.list_files", fail_once)
    (tmp_path / "one.json").write_text("")
    with watch_files(Stage("Stage", f"{tmp_path}/*.json", {"one.json": 1.0, "two.json": 1.0}, "files")):
        time.sleep(0.4)
    assert len(listings) > 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "Stage: 1 of 2 files" in error
