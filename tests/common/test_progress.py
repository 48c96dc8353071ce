"""Test the progress of a stage: the line at several widths, when a terminal and a log have one, and durations."""

import io
import re
import sys

import pytest
from rich.console import Console

from beambert.common import progress
from beambert.common.formatting import format_duration
from beambert.common.progress import BAR, Progress, TextProgress, progress_line, remaining

PARTS = ["step 1,200/2,500", "ETA 3 min", "loss 5.229", "MLM accuracy 0.193", "261 seq/s"]
LINES = {
    60: "step 1,200/2,500  ETA 3 min  loss 5.229  MLM accuracy 0.193",
    80: "step 1,200/2,500  ━━━━────  ETA 3 min  loss 5.229  MLM accuracy 0.193  261 seq/s",
    100: "step 1,200/2,500  ━━━━━━━━━━━━━───────────────  ETA 3 min  loss 5.229  MLM accuracy 0.193  261 seq/s",
}


class Clock:
    """A clock whose time the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("columns", LINES)
def test_a_line_has_the_parts_that_fit(columns):
    assert progress_line(PARTS, columns, 0.48) == LINES[columns]


@pytest.mark.parametrize("columns", [1, 9, 20, 60, 80, 100, 120])
@pytest.mark.parametrize("fraction", [None, -1.0, 0.0, 0.5, 1.0, 2.0])
def test_no_line_is_wider_than_the_terminal_or_100_columns(columns, fraction):
    line = progress_line(PARTS, columns, fraction)
    assert len(line) <= min(columns, 100)
    assert line.startswith("step 1,200/2,500"[:columns])
    finished = line.count(BAR[0]) / max(1, sum(map(line.count, BAR)))
    assert fraction is None or not finished or finished == pytest.approx(min(fraction, 1), abs=0.05)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "ETA 0 s"), (72.4, "ETA 72 s"), (99.6, "ETA 2 min"), (3500, "ETA 58 min"), (1e5, "ETA 27.8 h")],
)
def test_remaining_time(seconds, text):
    assert remaining(seconds) == text


def lines_of_log(capsys, clock, steps, total, seconds_a_step, **options):
    with Progress(total, clock=clock, **options) as stage:
        for step in range(1, steps + 1):
            clock.now += seconds_a_step
            stage.update(step, [f"step {step}"])
    return capsys.readouterr().err.splitlines()


def test_a_log_has_the_first_line_and_one_every_tenth(capsys):
    lines = lines_of_log(capsys, Clock(), 1000, 1000, 0.1, quiet_seconds=0)
    assert [line.split("  ")[0] for line in lines] == ["step 1", *(f"step {step}" for step in range(100, 1001, 100))]
    assert lines[1] == "step 100  ETA 90 s"
    assert lines[-1] == "step 1000"


def test_a_log_has_a_line_every_30_seconds_of_slow_work(capsys):
    lines = lines_of_log(capsys, Clock(), 100, 1e6, 10, quiet_seconds=0)
    assert lines[:3] == ["step 1", "step 4  ETA 115.7 days", "step 7  ETA 115.7 days"]
    assert len(lines) == 34


def test_a_log_has_no_lines_of_a_short_stage(capsys):
    assert lines_of_log(capsys, Clock(), 40, 40, 0.1) == []


def test_remaining_time_follows_the_recent_rate(capsys):
    clock = Clock()
    with Progress(100, clock=clock, quiet_seconds=0) as stage:
        for done in [*range(50), *(50 + tick / 10 for tick in range(41))]:
            clock.now += 1
            stage.update(done, [str(done)])
    # 1 unit a second, as at the start, would be 46 seconds.
    assert capsys.readouterr().err.splitlines()[-1].startswith("5")
    assert stage._seconds_left(54.0) == pytest.approx(460, rel=0.1)


@pytest.fixture
def terminal(monkeypatch):
    """Make stderr a terminal of 80 columns, and return a function that returns what it has shown."""
    stream = io.StringIO()
    monkeypatch.setattr(
        progress,
        "TextConsole",
        lambda **_: Console(file=stream, force_terminal=True, width=80, color_system=None, highlight=False),
    )
    monkeypatch.setattr(sys, "stderr", stream)
    return lambda: re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", stream.getvalue()).replace("\r", "\n").split("\n")


def test_a_terminal_has_a_live_line_and_keeps_the_last(terminal):
    clock = Clock()
    with Progress(10, clock=clock) as stage:
        for done in (1, 10):
            clock.now += 5
            stage.update(done, [f"step {done}/10", "loss 7.5"])
    lines = [line.rstrip() for line in terminal() if line.strip()]
    assert any(re.fullmatch(r"step 1/10  ━{3}─{27}  loss 7.5", line) for line in lines)
    assert lines[-1] == "step 10/10  loss 7.5  in 10 s"


def test_a_terminal_keeps_no_line_of_a_failed_stage(terminal):
    def fail() -> None:
        with Progress(10, clock=Clock()) as stage:
            stage.update(1, ["step 1/10"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not any("in 0 s" in line for line in terminal())


def test_texts_end_with_a_line_of_the_caller(terminal):
    with TextProgress(1000) as texts:
        texts.add(3, 500)
        texts.finish("Wrote features.npz: 3 texts")
    lines = [line for line in terminal() if line.strip()]
    assert re.match(r"3 texts  ━{15}─{15}  [\d,]+ texts/s", lines[0])
    assert re.fullmatch(r"Wrote features.npz: 3 texts, [\d,]+ texts/s", lines[-1])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (106, "1 min 46 s"),
        (150, "2 min 30 s"),
        (599.6, "10 min"),
        (600, "10 min"),
        (3599, "60 min"),
        (3600, "1.0 h"),
        (47.5 * 3600, "47.5 h"),
        (48 * 3600, "2.0 days"),
        (1e9, "11,574.1 days"),
    ],
)
def test_the_largest_fitting_unit(seconds, text):
    assert format_duration(seconds) == text
