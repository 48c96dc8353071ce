"""Monitor training: print the progress line, and write `metrics.jsonl` and TensorBoard events."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict

from beambert.common.progress import Progress
from beambert.common.terminal import MAX_COLUMNS, wrapped
from beambert.common.typed_json import Count, NonNegative, Number
from beambert.pipelines.dataset import SPLITS
from beambert.trainers.errors import TrainingError
from beambert.trainers.metrics.baseline_record import MEANINGS, LevelFields, passed_at, passed_levels
from beambert.trainers.metrics.chance_levels import with_level
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.goodput import GOODPUT, GoodputSeconds, GoodputTimer, latest_seconds, resumed_seconds
from beambert.trainers.monitoring.metrics_jsonl import FILE_NAME, TIMING_FIELDS, MetricsLog
from beambert.trainers.monitoring.tensorboard import EventLog
from beambert.trainers.monitoring.throughput import StepCost, TimedSteps, rates_of
from beambert.trainers.monitoring.training_progress import print_status, steps_a_report

LOGS_NAME = "logs"
# Metrics of a progress line: the loss and an accuracy.
_MOST_METRICS = 2
# Indentation of the second line of an evaluation.
_INDENT = 6
# Numerator and denominator of each metric over some steps.
MetricSums = Mapping[str, tuple[float, float]]


class MonitorState(TypedDict):
    """The result of `TrainingMonitor.state`, with the fields of `GoodputSeconds`."""

    examples: Count
    tokens: NonNegative
    skipped_steps: Count
    seconds: NonNegative
    metric_sums: dict[str, tuple[Number, Number]]
    step_seconds: NonNegative
    start_seconds: NonNegative
    compile_seconds: NonNegative
    input_seconds: NonNegative
    checkpoint_seconds: NonNegative
    evaluation_seconds: NonNegative
    lost_seconds: NonNegative


class TrainingMonitor:
    """Print and record the metrics of a run; use as a context manager.

        with TrainingMonitor(output, last_step, shown, state, step=step) as monitor:
            monitor.begin_stage(work)
            monitor.update(step, metric_sums, wait_seconds)   # after every call of the loop
            with monitor.pause("evaluation_seconds"):         # everything but training: evaluation, saving
                monitor.record_evaluation(step, metrics, samples)
            with monitor.pause("checkpoint_seconds"):
                save(..., state=monitor.state())

    Evaluate before saving, so that a run that resumes from the checkpoint has the lines of both. After training, the
    monitor may be entered again, to record the evaluation of the last checkpoint.

    Args:
        output: the run directory, for `metrics.jsonl` and `logs/`; None writes and prints nothing, as on all machines
            except the chief.
        last_step: last step of training.
        shown_metrics: metrics of an evaluation as printed, in order, with their labels; the progress line has the first
            two.
        state: result of `state()` saved with the checkpoint to resume from; {} for a new run.
        step: number of completed steps.
        peak_flops: peak of all devices together in FLOP/s; None if unknown.
        clock: monotonic clock in seconds.
        start: time of the clock at which the command started, which begins the wall time of the goodput; None for the
            first stage. Without a stage, as in an evaluation alone, no time is counted.
        levels: masked-LM levels by name; the first report that passes one prints a line.
        measure: function of a step; returns further metrics of the model, for a line of the log.
        observe: called with each training line of the log.
        trains: whether training continues from `step`, which removes what the logs have of later steps. An evaluation
            alone keeps it.
    """

    def __init__(
        self,
        output: Path | None,
        last_step: int,
        shown_metrics: Mapping[str, str],
        state: Mapping[str, Any],
        *,
        step: int = 0,
        peak_flops: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        start: float | None = None,
        levels: Mapping[str, LevelFields] | None = None,
        measure: Callable[[int], Mapping[str, float]] | None = None,
        observe: Callable[[Mapping[str, Any]], None] | None = None,
        trains: bool = True,
    ) -> None:
        self.output = output
        self.last_step = last_step
        self.shown_metrics = shown_metrics
        self.step = step
        self.peak_flops = peak_flops
        self.clock = clock
        self.levels, self.measure, self.observe = levels or {}, measure, observe
        self.report_steps = steps_a_report(last_step)
        self.examples = int(state.get("examples", 0))
        self.tokens = float(state.get("tokens", 0.0))
        self.skipped = int(state.get("skipped_steps", 0))
        self.corrupt = 0
        self.seconds = float(state.get("seconds", 0.0))
        # Metric sums since the last line of the log.
        self.sums = {name: (float(top), float(bottom)) for name, (top, bottom) in state.get("metric_sums", {}).items()}
        self.timed: list[TimedSteps] = []
        # The last steps, for the progress line: metrics of a single step are noisy.
        self.recent: deque[tuple[MetricSums, TimedSteps | None]] = deque()
        self.work = StepCost(0, 0.0, 0.0)
        self.stage_end, self.later_flops = last_step, 0.0
        self.is_compiling = True
        self.since = clock()
        lines = [] if output is None else metrics_jsonl.read(output / FILE_NAME)
        self.trains = trains
        training = [line for line in lines if line["split"] == "train" and line["step"] <= step]
        self.passed = set(passed_at(training, self.levels))
        self.last_kept_step = 0 if trains else max((line["step"] for line in lines), default=0)
        seconds = resumed_seconds(state, lines) if trains else latest_seconds([state, *lines])
        self.timer = GoodputTimer(seconds, clock, start)
        self.log: MetricsLog | None = None
        self.events: dict[str, EventLog] = {}
        self.progress: Progress | None = None
        self.resources = contextlib.ExitStack()

    def __enter__(self) -> "TrainingMonitor":
        if self.output is not None:
            step = max(self.step, self.last_kept_step)
            self.log = MetricsLog(self.output / FILE_NAME, step)
            self.resources.callback(self.log.close)
            for split in SPLITS:
                self.events[split] = EventLog(self.output / LOGS_NAME / split, step)
                self.resources.callback(self.events[split].close)
            self.progress = self.resources.enter_context(Progress(self.last_step, stdout=True, quiet_seconds=0))
        self.since = self.clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.timer.switch("evaluation_seconds")
        if self.log is not None and self.trains and (fields := self.timer.fields()):
            # The last checkpoint was saved after the last line. Errors of earlier writes were already reported.
            with contextlib.suppress(OSError, TrainingError):
                self.log.update_last(fields)
        self.resources.close()

    @property
    def goodput(self) -> GoodputSeconds:
        """Return the run's wall time so far, by cause."""
        return self.timer.seconds

    def begin_stage(self, work: StepCost, end_step: int | None = None, later_flops: float = 0.0) -> None:
        """Set the cost of the following steps.

        Args:
            work: cost of a step.
            end_step: end of the stage; None for the end of training.
            later_flops: floating-point operations of all later stages, for the ETA.
        """
        self.work = work
        self.stage_end = self.last_step if end_step is None else end_step
        self.later_flops = later_flops
        # New shapes are compiled, and their metrics differ from those of earlier shapes.
        self.is_compiling = True
        self.recent.clear()
        self.timer.switch("step_seconds")

    @contextlib.contextmanager
    def pause(self, cause: str) -> Iterator[None]:
        """Exclude the time of the body from all rates.

        Args:
            cause: the field of `GoodputSeconds` for this time.
        """
        start, previous = self.clock(), self.timer.cause
        self.timer.switch(cause)
        try:
            yield
        finally:
            self.timer.switch(previous)
            self.since += self.clock() - start

    def next_report(self, step: int) -> int:
        """Return the first step after `step` at which a line of the log is due."""
        return min((step // self.report_steps + 1) * self.report_steps, max(self.last_step, step + 1))

    def update(
        self,
        step: int,
        metric_sums: MetricSums,
        wait_seconds: float,
        skipped: int = 0,
        corrupt_records: int = 0,
        compile_seconds: float = 0.0,
    ) -> None:
        """Count the steps up to `step`, print the progress line, and write a line to the log if one is due.

        A line is due at every multiple of `report_steps` and at the last step. It has the metrics over the steps since
        the previous line, with sums divided once.

        Args:
            step: number of completed steps.
            metric_sums: metric sums over the steps since the previous call.
            wait_seconds: time that these steps waited for data, in seconds.
            skipped: number of these steps that were skipped because of a non-finite loss or gradient.
            corrupt_records: number of corrupt records that this process has skipped so far.
            compile_seconds: time that these steps were compiled, in seconds.
        """
        now = self.clock()
        self.timer.count(waiting=wait_seconds, compiling=compile_seconds)
        seconds, steps = now - self.since, step - self.step
        self.since = now
        self.seconds += seconds
        self.examples += steps * self.work.sequences
        self.tokens += steps * self.work.tokens
        self.skipped += skipped
        self.corrupt = corrupt_records
        timed = None
        if self.is_compiling:
            self.is_compiling = False
        else:
            work = (steps * self.work.sequences, steps * self.work.tokens, steps * self.work.flops)
            timed = TimedSteps(steps, *work, seconds, wait_seconds, steps * self.work.unpadded_tokens)
            self.timed.append(timed)
        self.sums = _added(self.sums, metric_sums)
        self._remember(metric_sums, timed, steps)
        report = step == self.last_step or step // self.report_steps > self.step // self.report_steps
        self.step = step
        if self.progress is not None and self.progress.is_due(step):
            self._show_progress(self.progress)
        if report:
            self._write_line()

    def record_evaluation(self, step: int, metrics: Mapping[str, float], samples: Sequence[str] = ()) -> None:
        """Record and print an evaluation.

        Args:
            step: number of completed steps.
            metrics: metrics of the validation split.
            samples: masked-LM samples (`mlm_samples.py`), one line each.
        """
        if self.log is None:
            return
        self.timer.count()
        fields = {**metrics, **self._counts(), "seconds": round(self.seconds, 3), **self.timer.fields()}
        self.log.write("validation", step, fields | ({"mlm_samples": list(samples)} if samples else {}))
        self.events["validation"].write(step, metrics, {"mlm_samples": samples} if samples else {})
        line = "  ".join([f"step {step:,}/{self.last_step:,}", "validation", *self._shown(metrics)])
        print_status(wrapped(line, _INDENT, MAX_COLUMNS))

    def state(self) -> dict[str, Any]:
        """Return the state to save with a checkpoint, with JSON types; the lines so far are flushed to disk.

        Raises:
            TrainingError: a log file was removed, moved or replaced.
        """
        if self.log is not None:
            self.log.sync()
            for events in self.events.values():
                events.require_file()
        return {
            "examples": self.examples,
            "tokens": self.tokens,
            "skipped_steps": self.skipped,
            "seconds": self.seconds,
            **self.goodput._asdict(),
            "metric_sums": {name: list(pair) for name, pair in self.sums.items()},
        }

    def _counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = {"examples": self.examples, "tokens": round(self.tokens)}
        return counts | ({"skipped_steps": self.skipped} if self.skipped else {})

    def _write_line(self) -> None:
        metrics, rates = _metric_values(self.sums), rates_of(self.timed, self.peak_flops)
        self.sums, self.timed = {}, []
        if self.log is None:
            return
        if self.measure is not None:
            with self.pause("evaluation_seconds"):
                metrics |= self.measure(self.step)
        timing = {"seconds": round(self.seconds, 3), **{name: float(f"{rate:.4g}") for name, rate in rates.items()}}
        timing |= self.timer.fields()
        if self.corrupt:
            timing["corrupt_records"] = self.corrupt
        assert timing.keys() <= TIMING_FIELDS
        self.log.write("train", self.step, {**metrics, **self._counts(), **timing})
        self.events["train"].write(self.step, {**metrics, **rates, GOODPUT: self.goodput.goodput})
        self._print_new_level(metrics)
        if self.observe is not None:
            self.observe({"split": "train", "step": self.step, **metrics, **self._counts()})

    def _remember(self, metric_sums: MetricSums, timed: TimedSteps | None, steps: int) -> None:
        """Keep the last steps, as many as between two lines of the log."""
        self.recent.append((metric_sums, timed))
        while len(self.recent) > max(1, self.report_steps // max(1, steps)):
            self.recent.popleft()

    def _show_progress(self, progress: Progress) -> None:
        """Show the metrics of the last steps; the other values are in `metrics.jsonl` and TensorBoard."""
        sums: MetricSums = {}
        for metric_sums, _ in self.recent:
            sums = _added(sums, metric_sums)
        timed = [timed for _, timed in self.recent if timed is not None]
        rates = rates_of(timed, self.peak_flops)
        parts = [f"step {self.step:,}/{self.last_step:,}", *self._shown(_metric_values(sums))[:_MOST_METRICS]]
        # Records and steps that were not used are more important than the speed.
        parts += [f"skipped {self.skipped:,}"] if self.skipped else []
        parts += [f"corrupt {self.corrupt:,}"] if self.corrupt else []
        parts += [f"{rates['sequences_per_second']:,.0f} seq/s"] if rates else []
        parts += [self.work.label] if self.work.label else []
        progress.show(self.step, parts, self._seconds_left(timed) if rates else None)

    def _shown(self, metrics: Mapping[str, float]) -> list[str]:
        return [
            with_level(f"{label} {metrics[name]:.3f}", name, metrics)
            for name, label in self.shown_metrics.items()
            if name in metrics
        ]

    def _print_new_level(self, metrics: Mapping[str, float]) -> None:
        """Print the last level that the metrics of a report pass for the first time."""
        new = [name for name in passed_levels(metrics, self.levels) if name not in self.passed]
        self.passed.update(new)
        if new:
            print_status(f"step {self.step:,}: {MEANINGS[new[-1]]} (level {new[-1]})")

    def _seconds_left(self, timed: Sequence[TimedSteps]) -> float:
        """Return the remaining seconds, at the rate of the last steps."""
        seconds, flops = sum(interval.seconds for interval in timed), sum(interval.flops for interval in timed)
        steps = self.stage_end - self.step
        if flops:
            return (steps * self.work.flops + self.later_flops) * seconds / flops
        return steps * seconds / sum(interval.steps for interval in timed)


def _added(first: MetricSums, second: MetricSums) -> dict[str, tuple[float, float]]:
    sums = dict(first)
    for name, (top, bottom) in second.items():
        old_top, old_bottom = sums.get(name, (0.0, 0.0))
        sums[name] = (old_top + top, old_bottom + bottom)
    return sums


def _metric_values(sums: MetricSums) -> dict[str, float]:
    """Return the metrics, without those of denominator 0."""
    return {name: top / bottom for name, (top, bottom) in sums.items() if bottom}
