"""Test the training monitor: `metrics.jsonl` and TensorBoard events, also of stopped runs, and the progress line."""

import json
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from beambert.trainers.metrics.baseline_record import MEANINGS, LevelFields
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS, MetricsLog
from beambert.trainers.monitoring.tensorboard import EventLog
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_monitor import TrainingMonitor
from beambert.trainers.monitoring.training_progress import steps_a_report

SHOWN = {"loss": "loss", "masked_lm_accuracy": "MLM", "next_sentence_accuracy": "NSP"}
FIRST, SECOND = StepCost(4, 4 * 32.0, 1e6, unpadded_tokens=4 * 20.0), StepCost(8, 8 * 64.0, 5e6, "length 64")


class Clock:
    """A clock whose time the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ratios(step: int, other: bool = False) -> dict[str, tuple[float, float]]:
    """Return metric sums like those of a step: floating-point numbers whose total depends on the order of addition."""
    sums = {"loss": (1.1 / (step + 3), 1.0), "masked_lm_accuracy": (step * 0.1, 3.0 + step % 5)}
    return sums | ({"next_sentence_accuracy": (0.7, 1.0 + step % 2)} if other else {})


def run(output: Path, last_step: int, stops: list[tuple[int, int]], eval_steps: int, stage_end: int) -> None:
    """Run all steps, with stops: (step of a checkpoint, number of steps after it when the run is killed)."""
    checkpoint, state = 0, {}
    for saved, more in [*stops, (last_step, 0)]:
        saved = min(max(saved, checkpoint), last_step)
        clock = Clock()
        with TrainingMonitor(output, last_step, SHOWN, state, step=checkpoint, clock=clock) as monitor:
            monitor.begin_stage(FIRST if checkpoint < stage_end else SECOND, min(stage_end, last_step))
            for step in range(checkpoint + 1, min(saved + more, last_step) + 1):
                if step == stage_end + 1 > checkpoint + 1:
                    monitor.begin_stage(SECOND)
                clock.now += 0.5 + 0.1 * (step % 3)
                monitor.update(step, ratios(step, step % 4 == 0), 0.1, skipped=int(step % 17 == 0))
                if step % eval_steps == 0 or step == last_step:
                    with monitor.pause("evaluation_seconds"):
                        clock.now += 100
                        monitor.record_evaluation(step, {"masked_lm_loss": 1 / step}, [f"at {step}"])
                if step == saved:
                    state_at_save = json.loads(json.dumps(monitor.state()))
            if saved > checkpoint:
                checkpoint, state = saved, state_at_save


def lines(output: Path, timing: bool = False) -> list[dict]:
    found = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return found if timing else [{name: line[name] for name in line.keys() - TIMING_FIELDS} for line in found]


@given(
    last_step=st.integers(1, 90),
    stops=st.lists(st.tuples(st.integers(1, 90), st.integers(0, 30)), max_size=4),
    eval_steps=st.integers(1, 40),
    stage_end=st.integers(1, 90),
    torn=st.booleans(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stopped_run_leaves_the_lines_of_one_that_never_stopped(
    tmp_path_factory, last_step, stops, eval_steps, stage_end, torn
):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "whole").mkdir()
    (folder / "stopped").mkdir()
    run(folder / "whole", last_step, [], eval_steps, stage_end)
    if torn:
        (folder / "stopped" / "metrics.jsonl").write_text('{"split": "train", "step": 0, "lo', encoding="utf-8")
    run(folder / "stopped", last_step, sorted(stops), eval_steps, stage_end)
    assert lines(folder / "stopped") == lines(folder / "whole")


def test_a_line_has_the_mean_metrics_since_the_line_before(tmp_path):
    run(tmp_path, 60, [], 30, 60)
    found = lines(tmp_path, timing=True)
    train = [line for line in found if line["split"] == "train"]
    assert [line["step"] for line in train] == list(range(3, 61, 3))
    for line in train:
        steps = range(line["step"] - 2, line["step"] + 1)
        some = [ratios(step, step % 4 == 0) for step in steps]
        assert line["loss"] == pytest.approx(sum(one["loss"][0] for one in some) / 3)
        top, bottom = (sum(one["masked_lm_accuracy"][i] for one in some) for i in (0, 1))
        assert line["masked_lm_accuracy"] == pytest.approx(top / bottom)
        # Only every fourth step has pairs; a window without pairs has no next-sentence accuracy.
        assert ("next_sentence_accuracy" in line) == any(step % 4 == 0 for step in steps)
        assert line["examples"] == 4 * line["step"]
        assert line["tokens"] == 4 * 32 * line["step"]
        assert line.get("skipped_steps", 0) == line["step"] // 17
    assert [line["step"] for line in found if line["split"] == "validation"] == [30, 60]
    assert found[-1] == {
        "split": "validation",
        "step": 60,
        "masked_lm_loss": 1 / 60,
        "examples": 240,
        "tokens": 240 * 32,
        "skipped_steps": 3,
        "seconds": pytest.approx(sum(0.5 + 0.1 * (step % 3) for step in range(1, 61)), abs=1e-3),
        "goodput": pytest.approx(30 / 236, abs=1e-4),
        "step_seconds": pytest.approx(30),
        "start_seconds": 0,
        "compile_seconds": 0,
        "input_seconds": pytest.approx(6),
        "checkpoint_seconds": 0,
        "evaluation_seconds": 200,
        "lost_seconds": 0,
        "mlm_samples": ["at 60"],
    }


def test_rates_leave_out_compilation_and_pauses(tmp_path):
    clock = Clock()
    with TrainingMonitor(tmp_path, 40, {}, {}, peak_flops=1e7, clock=clock) as monitor:
        monitor.begin_stage(FIRST, 20)
        clock.now += 60
        monitor.update(1, {}, 50.0)
        for step in range(2, 40):
            if step == 21:
                monitor.begin_stage(SECOND)
                clock.now += 30
            with monitor.pause("evaluation_seconds"):
                clock.now += 7
            clock.now += 0.25
            monitor.update(step, {}, 0.05)
            with monitor.pause("checkpoint_seconds"):
                clock.now += 9
            monitor.state()
    first, *_ = found = lines(tmp_path, timing=True)
    assert first["step"] == 2
    expected = {"sequences_per_second": 16, "tokens_per_second": 512, "model_flops_utilization": 0.4}
    expected["unpadded_tokens_per_second"] = 320
    assert {name: first[name] for name in expected} == pytest.approx(expected)
    assert first["data_wait_fraction"] == pytest.approx(0.2)
    assert first["seconds"] == pytest.approx(60.25)
    last = found[-1]
    assert last["step"] == 38
    assert last["sequences_per_second"] == pytest.approx(32)
    assert last["model_flops_utilization"] == pytest.approx(2.0)
    assert last["seconds"] == pytest.approx(60 + 30 + 37 * 0.25)


def test_only_the_chief_writes_and_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with TrainingMonitor(None, 10, SHOWN, {}) as monitor:
        monitor.begin_stage(FIRST)
        for step in range(1, 11):
            monitor.update(step, ratios(step), 0.0)
        monitor.record_evaluation(10, {"loss": 1.0})
        assert monitor.state()["examples"] == 40
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_reports():
    assert [steps_a_report(steps) for steps in (1, 19, 40, 1000, 2000, 100_000)] == [1, 1, 2, 50, 100, 100]


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_the_next_report_is_the_next_step_that_writes_a_line(last_step, step):
    monitor = TrainingMonitor(None, last_step, {}, {})
    report = monitor.next_report(step)
    if step < last_step:
        due = {last_step, *range(0, last_step, monitor.report_steps)}
        assert report == min(other for other in due if other > step)


# The log file.


def test_incomplete_lines_and_lines_after_the_checkpoint_are_removed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = [json.dumps({"split": "train", "step": step}) + "\n" for step in (5, 10, 11)]
    for torn in (
        "",
        '{"split": "train", "st',
        '{"split": "validation", "step": 10}',
        "\0\0\0\0",
        "\xff",
    ):
        path.write_text("".join(whole) + torn, encoding="latin-1")
        log = MetricsLog(path, 10)
        log.write("train", 12, {"loss": 0.1})
        log.close()
        assert path.read_text(encoding="utf-8") == "".join(whole[:2]) + '{"split": "train", "step": 12, "loss": 0.1}\n'
    assert [child.name for child in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_line_of_a_step_replaces_the_one_before_it(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, 0)
    log.write("train", 5, {"loss": 1.0})
    log.write("validation", 5, {"loss": 2.0})
    log.close()
    log = MetricsLog(path, 5)
    log.write("validation", 5, {"loss": 3.0})
    log.write("train", 6, {"loss": float("nan")})
    log.close()
    assert [(line["split"], line["step"], line["loss"]) for line in metrics_jsonl.read(path)] == [
        ("train", 5, 1.0),
        ("validation", 5, 3.0),
        ("train", 6, None),
    ]
    assert metrics_jsonl.read(tmp_path / "none.jsonl") == []


def test_a_line_of_an_earlier_step_is_written_before_later_ones(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, 0)
    for step in (5, 10):
        log.write("train", step, {})
    log.write("validation", 5, {})
    log.close()
    assert [(line["split"], line["step"]) for line in metrics_jsonl.read(path)] == [
        ("train", 5),
        ("validation", 5),
        ("train", 10),
    ]


# TensorBoard.


def test_tensorboard_drops_events_after_the_checkpoint(tmp_path):
    with TrainingMonitor(tmp_path, 40, {}, {}) as monitor:
        monitor.begin_stage(FIRST)
        for step in range(1, 31):
            monitor.update(step, {"loss": (1.0, 1.0)}, 0.0)
        monitor.record_evaluation(30, {"loss": 9.0}, ["a [MASK -> b 50%] c", "# no heading"])
    with TrainingMonitor(tmp_path, 40, {}, {}, step=11) as monitor:
        monitor.begin_stage(FIRST)
        for step in range(12, 22):
            monitor.update(step, {"loss": (2.0, 1.0)}, 0.0)
        monitor.record_evaluation(16, {"loss": 8.0}, ["x"])
    train, validation = (accumulated(tmp_path / "logs" / split) for split in ("train", "validation"))
    assert values(train, "loss") == [
        *((step, 1.0) for step in range(2, 11, 2)),
        *((step, 2.0) for step in range(12, 21, 2)),
    ]
    assert values(validation, "loss") == [(16, 8.0)]
    assert values(validation, "mlm_samples") == [(16, b"    x")]


def test_an_evaluation_alone_keeps_the_log(tmp_path):
    with TrainingMonitor(tmp_path, 40, {}, {}) as monitor:
        monitor.begin_stage(FIRST)
        for step in range(1, 31):
            monitor.update(step, {"loss": (1.0, 1.0)}, 0.0)
        monitor.record_evaluation(30, {"loss": 9.0})
    before = metrics_jsonl.read(tmp_path / "metrics.jsonl")
    with TrainingMonitor(tmp_path, 40, {}, {}, step=10, trains=False) as monitor:
        monitor.record_evaluation(10, {"loss": 7.0})
    lines = metrics_jsonl.read(tmp_path / "metrics.jsonl")
    (line,) = (line for line in lines if line not in before)
    assert [other for other in lines if other != line] == before
    assert (line["split"], line["step"], line["lost_seconds"]) == ("validation", 10, 0)
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert values(accumulated(tmp_path / "logs/validation"), "loss") == [(30, 9.0), (10, 7.0)]


def values(events: EventAccumulator, tag: str) -> list[tuple[int, object]]:
    return [(event.step, tf.make_ndarray(event.tensor_proto).item(0)) for event in events.Tensors(tag)]


def accumulated(directory: Path) -> EventAccumulator:
    """Return the events as TensorBoard reads them."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0})
    return events.Reload()


def test_without_events_there_is_no_file(tmp_path):
    EventLog(tmp_path / "logs", 0).close()
    assert not (tmp_path / "logs").exists()


# The progress line.

LEVELS_AT = {300: "unigram", 400: "unchanged"}


def shown(tmp_path, **changes) -> None:
    """Print the progress of some steps, with metrics that change at step 250."""
    clock = Clock()
    levels = {"unigram": LevelFields(7.0, 0.05), "unchanged": LevelFields(6.5, 0.1), "bigram": LevelFields(1.0, 0.5)}
    with TrainingMonitor(tmp_path, 2000, SHOWN, {}, levels=levels, clock=clock, **changes) as monitor:
        monitor.begin_stage(FIRST)
        for step in range(monitor.step + 1, 401):
            clock.now += 0.02
            loss = 7.5 if step < 250 else 6.0
            metrics = {"loss": (loss, 1.0), "masked_lm_loss": (loss, 1.0), "masked_lm_accuracy": (0.25, 1.0)}
            monitor.update(step, {**metrics, "next_sentence_accuracy": (0.5, 1.0)}, 0.001, skipped=int(step == 390))


def test_a_log_has_the_most_important_metrics_every_tenth(tmp_path, capsys):
    shown(tmp_path)
    printed = [line for line in capsys.readouterr().out.splitlines() if "level" not in line]
    assert printed == [
        "step 1/2,000  loss 7.500  MLM 0.250",
        "step 200/2,000  ETA 36 s  loss 7.500  MLM 0.250  200 seq/s",
        "step 400/2,000  ETA 32 s  loss 6.000  MLM 0.250  skipped 1  200 seq/s",
    ]


def test_a_new_level_is_printed_once_and_not_again_after_resuming(tmp_path, capsys):
    shown(tmp_path)
    lines = [line for line in capsys.readouterr().out.splitlines() if "level" in line]
    # The loss over steps 201 to 300 is the mean of both.
    assert lines == [f"step {step}: {MEANINGS[name]} (level {name})" for step, name in LEVELS_AT.items()]
    shown(tmp_path, step=350)
    assert capsys.readouterr().out.count("level") == 1


@pytest.mark.parametrize("name", MEANINGS)
def test_the_sentence_of_a_level_fits_100_columns(name):
    assert len(f"step 1,000,000: {MEANINGS[name]} (level {name})") <= 100
