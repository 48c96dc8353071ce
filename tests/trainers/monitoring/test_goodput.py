"""Test the goodput: every second of a run's processes has one cause, also after kills, stops and resumes."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.goodput import (
    LABELS,
    GoodputSeconds,
    GoodputTimer,
    latest_seconds,
    resumed_seconds,
    summary,
)
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_monitor import TrainingMonitor

SECONDS = st.floats(0, 1e8)


class Clock:
    """A clock whose time the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(SECONDS, min_size=7, max_size=7).filter(lambda seconds: sum(seconds) > 1e-3))
def test_shares_add_up_to_one(seconds):
    goodput = GoodputSeconds(*seconds)
    assert sum(goodput.shares.values()) == pytest.approx(1)
    assert goodput.goodput == pytest.approx(seconds[0] / sum(seconds))
    assert LABELS.keys() == goodput._asdict().keys()


def test_without_wall_time_there_are_no_shares():
    assert GoodputSeconds().goodput == 0
    assert GoodputSeconds().shares == {}
    assert GoodputTimer(GoodputSeconds(), Clock()).fields() == {}


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from(GoodputSeconds._fields)),
            st.floats(0, 1e4),
            st.floats(0, 2e4),
            st.floats(0, 2e4),
        ),
        max_size=20,
    )
)
def test_the_timer_counts_every_second_once(events):
    clock = Clock()
    timer = GoodputTimer(GoodputSeconds(lost_seconds=5.0), clock, start=990.0)
    for cause, elapsed, waiting, compiling in events:
        clock.now += elapsed
        if cause is None:
            timer.count(waiting=waiting, compiling=compiling)
        else:
            timer.switch(cause)
    timer.count()
    assert timer.seconds.total == pytest.approx(5 + clock.now - 990)
    assert min(timer.seconds) >= 0


def test_a_timer_without_start_begins_at_the_first_switch():
    clock = Clock()
    timer = GoodputTimer(GoodputSeconds(), clock)
    clock.now += 10
    timer.count()
    timer.switch("step_seconds")
    clock.now += 3
    timer.count(waiting=1, compiling=0.5)
    assert timer.seconds == GoodputSeconds(step_seconds=1.5, compile_seconds=0.5, input_seconds=1)


def test_steps_after_the_checkpoint_are_lost_when_a_process_is_killed():
    saved = GoodputSeconds(step_seconds=100, start_seconds=20, compile_seconds=9, evaluation_seconds=4, lost_seconds=3)
    logged = GoodputSeconds(
        step_seconds=130, start_seconds=20, compile_seconds=9, input_seconds=2, evaluation_seconds=8, lost_seconds=3
    )
    lines = [{}, logged._asdict(), saved._asdict(), {"step_seconds": None}]
    resumed = resumed_seconds(saved._asdict(), lines)
    assert resumed == logged._replace(step_seconds=100, lost_seconds=33)
    assert resumed.total == logged.total
    # Without a checkpoint all steps are lost.
    assert resumed_seconds({}, lines) == logged._replace(step_seconds=0, lost_seconds=133)
    # The checkpoint may be later than the log.
    assert resumed_seconds(logged._asdict(), [saved._asdict()]) == logged


def test_summary():
    seconds = GoodputSeconds(1800, 36, 72, 1, 108, 10.8, 1572.2)
    assert seconds.total == 3600
    assert summary(seconds) == "50% of 1.0 h; lost work 44%, checkpoints 3%, compilation 2%, start 1%"
    assert summary(GoodputSeconds(step_seconds=12)) == "100% of 12 s"


class Process:
    """A process that trains, one second a step, until it ends or is killed.

    Args:
        output: the run directory.
        saved: step and state of the checkpoint to resume from.
        clock: the clock of the machine.
    """

    def __init__(self, output: Path, saved: tuple[int, dict], clock: Clock) -> None:
        self.clock, self.saved = clock, saved
        self.step = saved[0]
        self.is_compiled = False
        self.start = self.recorded = clock.now
        clock.now += 4
        self.monitor = TrainingMonitor(output, 60, {}, saved[1], step=self.step, clock=clock, start=self.start)
        self.monitor.__enter__()
        self.monitor.begin_stage(StepCost(1, 1.0, 1.0))

    def run(self, steps: int, save_every: int = 10, evaluate_every: int = 20) -> None:
        for _ in range(steps):
            self.step += 1
            compiling = 0.0 if self.is_compiled else 3.0
            self.is_compiled = True
            self.clock.now += 1.25 + compiling
            self.monitor.update(self.step, {}, 0.25, compile_seconds=compiling)
            if self.step % 3 == 0:
                self.recorded = self.clock.now
            if self.step % evaluate_every == 0:
                with self.monitor.pause("evaluation_seconds"):
                    self.clock.now += 2
                self.monitor.record_evaluation(self.step, {"loss": 1.0})
                self.recorded = self.clock.now
            if self.step % save_every == 0:
                with self.monitor.pause("checkpoint_seconds"):
                    self.saved = self.step, json.loads(json.dumps(self.monitor.state()))
                    self.recorded = self.clock.now
                    self.clock.now += 0.5

    def end(self) -> None:
        if metrics_jsonl.read(self.monitor.output / "metrics.jsonl"):
            self.recorded = self.clock.now
        self.monitor.__exit__(None, None, None)


def recorded(output: Path) -> GoodputSeconds:
    return latest_seconds(metrics_jsonl.read(output / "metrics.jsonl"))


def test_the_causes_of_a_run_without_interruption(tmp_path):
    clock = Clock()
    process = Process(tmp_path, (0, {}), clock)
    process.run(40)
    process.end()
    assert recorded(tmp_path) == GoodputSeconds(
        step_seconds=40, start_seconds=4, compile_seconds=3, input_seconds=10, checkpoint_seconds=2,
        evaluation_seconds=4,
    )  # fmt: skip
    assert recorded(tmp_path).total == clock.now - 1000
    last = metrics_jsonl.read(tmp_path / "metrics.jsonl")[-1]
    assert last["goodput"] == pytest.approx(40 / 63, abs=1e-4)


def test_lost_work_is_kept_when_processes_are_killed_again_and_again(tmp_path):
    clock = Clock()
    process = Process(tmp_path, (0, {}), clock)
    process.run(18)
    # Killed before its first line and without a checkpoint: the lines of the first process still count.
    process = Process(tmp_path, process.saved, clock)
    process.run(1)
    for run in (6, 4):
        process = Process(tmp_path, process.saved, clock)
        process.run(run)
    process = Process(tmp_path, process.saved, clock)
    process.run(20)
    process.end()
    seconds = recorded(tmp_path)
    assert seconds.step_seconds == 30
    # The last lines before the kills are at steps 18, 15 and 12; the checkpoint is at step 10.
    assert seconds.lost_seconds == 8 + 5 + 2
    steps = [line["step"] for line in metrics_jsonl.read(tmp_path / "metrics.jsonl") if line["split"] == "train"]
    assert steps == list(range(3, 31, 3))


def test_a_checkpoint_after_the_resume_removes_the_lines_of_later_steps(tmp_path):
    clock = Clock()
    process = Process(tmp_path, (0, {}), clock)
    process.run(18)
    process = Process(tmp_path, process.saved, clock)
    process.run(1)
    assert metrics_jsonl.read(tmp_path / "metrics.jsonl")[-1]["step"] == 18
    process.monitor.state()
    assert metrics_jsonl.read(tmp_path / "metrics.jsonl")[-1]["step"] == 9


def test_the_last_evaluation_of_a_process_counts_and_a_later_one_does_not(tmp_path):
    clock = Clock()
    process = Process(tmp_path, (0, {}), clock)
    process.run(60)
    process.end()
    clock.now += 9
    with process.monitor as monitor:
        monitor.record_evaluation(60, {"loss": 2.0})
    seconds = recorded(tmp_path)
    assert seconds.evaluation_seconds == 3 * 2 + 9
    assert seconds.total == clock.now - 1000
    with TrainingMonitor(tmp_path, 60, {}, process.saved[1], step=60, clock=clock) as monitor:
        clock.now += 100
        monitor.record_evaluation(60, {"loss": 2.0})
    assert recorded(tmp_path) == seconds


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_causes_add_up_over_any_interruptions(tmp_path_factory, interruptions):
    output = tmp_path_factory.mktemp("run")
    clock, saved, recorded_seconds = Clock(), (0, {}), 0.0
    for steps, is_killed in interruptions:
        process = Process(output, saved, clock)
        # The start of this process has been counted.
        assert process.monitor.goodput.total == pytest.approx(recorded_seconds + 4, abs=0.1)
        assert min(process.monitor.goodput) >= 0
        process.run(min(steps, 60 - saved[0]))
        if not is_killed:
            process.end()
        saved = process.saved
        recorded_seconds += process.recorded - process.start
        clock.now += 1000
    assert Process(output, saved, clock).monitor.goodput.total == pytest.approx(recorded_seconds + 4, abs=0.1)
