"""Render the report of several runs of a task, by `--seeds` or `beambert tune`: table, mean, deviation, best."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from beambert.common.formatting import counted
from beambert.common.local_files import write_atomic
from beambert.reporting.rendering import render
from beambert.trainers.checkpoints.checkpoint_manager import lower_is_better
from beambert.trainers.metrics.chance_levels import is_level, level_of, with_level
from beambert.trainers.run_report.published_scores import IN_PERCENT
from beambert.trainers.run_report.task_sections import metric_label

FILE_NAME = "report.html"


class RunOutcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        name: name, also of the directory.
        options: options that differ between runs, as typed.
        metrics: metrics of the evaluation; None if the run has not completed.
        problem: error of a failed run; None otherwise.
        warnings: warnings about its scores.
    """

    name: str
    options: Mapping[str, str]
    metrics: Mapping[str, float] | None
    problem: str | None
    warnings: tuple[str, ...] = ()


class Summary(NamedTuple):
    """A summary of a metric over runs.

    Attributes:
        runs: number of runs with the metric.
        mean: mean of the metric.
        deviation: sample standard deviation (n - 1); None for a single run.
        best: index of the best run among all runs; of equals, the first one.
        best_value: metric of the best run.
    """

    runs: int
    mean: float
    deviation: float | None
    best: int
    best_value: float


def summary(runs: Sequence[RunOutcome], metric: str) -> Summary | None:
    """Return mean, deviation and best of a metric; None if no run has a finite value.

    Raises:
        TrainingError: the direction of the metric is unknown.
    """
    values = {index: value for index, run in enumerate(runs) if (value := _value(run, metric)) is not None}
    if not values:
        return None
    sign = -1.0 if lower_is_better(metric) else 1.0
    best = max(values, key=lambda index: (sign * values[index], -index))
    mean, deviation = statistics.fmean(values.values()), _deviation(list(values.values()))
    return Summary(len(values), mean, deviation, best, values[best])


def _deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def shown(metric: str, value: float) -> str:
    """Return a metric with enough digits to distinguish runs."""
    return f"{value:.2f}" if metric in IN_PERCENT else f"{value:.4f}"


def summary_line(runs: Sequence[RunOutcome], metric: str) -> str:
    """Return the summary of a metric as a line, for the terminal and the report."""
    results = summary(runs, metric)
    if results is None:
        return f"No run has a value of {metric_label(metric)}."
    spread = "" if results.deviation is None else f", standard deviation {shown(metric, results.deviation)}"
    level = level_of(metric, runs[results.best].metrics or {})
    return (
        f"{metric_label(metric)} over {counted(results.runs, 'run')}: mean {shown(metric, results.mean)}{spread}; "
        f"best {shown(metric, results.best_value)} ({runs[results.best].name})"
        + ("" if level is None else f"; {level[0]} {shown(metric, level[1])}")
    )


def warnings_of_runs(runs: Sequence[RunOutcome]) -> list[str]:
    """Return the distinct warnings about the scores of all runs, each with the names of its runs."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for line in run.warnings:
            names.setdefault(line, []).append(run.name)
    return [f"{', '.join(run_names)}: {line}" for line, run_names in names.items()]


def write_runs_report(output: Path, title: str, runs: Sequence[RunOutcome], metric: str) -> Path:
    """Write `report.html` of several runs into their common directory.

    Args:
        output: the directory.
        title: title of the page.
        runs: the runs, in display order.
        metric: metric that selects the best run.

    Returns:
        Path of the report.

    Raises:
        OSError: the report cannot be written.
        TrainingError: the direction of the metric is unknown.
    """
    path = output / FILE_NAME
    write_atomic(path, runs_page(title, runs, metric).encode())
    return path


def runs_page(title: str, runs: Sequence[RunOutcome], metric: str) -> str:
    """Return the report of several runs as HTML."""
    results = summary(runs, metric)
    tiles = [("runs", f"{len(runs):,}")]
    if results is not None:
        label = metric_label(metric)
        tiles += [(f"best {label}", shown(metric, results.best_value)), (f"mean {label}", shown(metric, results.mean))]
        level = level_of(metric, runs[results.best].metrics or {})
        if level is not None:
            tiles.append((level[0], shown(metric, level[1])))
        if results.deviation is not None:
            tiles.append(("standard deviation", shown(metric, results.deviation)))
    return render(
        "runs_report.html",
        title=title,
        tiles_shown=tiles,
        problems=[f"{run.name}: {run.problem}" for run in runs if run.problem] + warnings_of_runs(runs),
        summary=summary_line(runs, metric),
        runs=_runs_table(runs, metric, results),
        means=_by_option(runs, metric),
    )


def _value(run: RunOutcome, metric: str) -> float | None:
    value = (run.metrics or {}).get(metric)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _runs_table(runs: Sequence[RunOutcome], metric: str, results: Summary | None) -> dict[str, Any]:
    options = list(dict.fromkeys(name for run in runs for name in run.options))
    names = {name for run in runs for name in run.metrics or {} if name != "global_step" and not is_level(name)}
    # The released code writes eval_loss a second time as loss.
    metrics = [metric, *sorted(names - {metric} - ({"loss"} if "eval_loss" in names else set()))]
    rows = []
    for index, run in enumerate(runs):
        values = [_value(run, name) for name in metrics]
        numbers = ["" if value is None else shown(name, value) for name, value in zip(metrics, values, strict=True)]
        if results is not None and index == results.best:
            note = "best"
        else:
            note = "failed" if run.problem else "" if run.metrics else "not run"
        rows.append((run.name, note, *(run.options.get(name, "") for name in options), *numbers))
    labels = (with_level(metric_label(name), name, _common_levels(runs), ".4f") for name in metrics)
    header = ("run", "status", *(name.replace("_", " ") for name in options), *labels)
    return {"header": header, "rows": rows}


def _common_levels(runs: Sequence[RunOutcome]) -> dict[str, float]:
    """Return the chance levels that are equal in all runs."""
    scored = [run.metrics for run in runs if run.metrics]
    levels = {name: value for name, value in (scored[0] if scored else {}).items() if is_level(name)}
    return {name: value for name, value in levels.items() if all(metrics.get(name) == value for metrics in scored)}


def _by_option(runs: Sequence[RunOutcome], metric: str) -> list[tuple[str, ...]]:
    """Return rows with the mean metric for each value of each option that has several values."""
    rows: list[tuple[str, ...]] = []
    for option in dict.fromkeys(name for run in runs for name in run.options):
        groups: dict[str, list[float]] = {}
        for run in runs:
            score = _value(run, metric)
            if option in run.options and score is not None:
                groups.setdefault(run.options[option], []).append(score)
        # An option with a distinct value in every run, such as a seed, has no means.
        if len(groups) < 2 or max(map(len, groups.values())) < 2:
            continue
        best = min if lower_is_better(metric) else max
        for setting, scores in groups.items():
            deviation = _deviation(scores)
            spread = "" if deviation is None else shown(metric, deviation)
            numbers = (shown(metric, statistics.fmean(scores)), spread, shown(metric, best(scores)))
            rows.append((option.replace("_", " "), setting, f"{len(scores)}", *numbers))
    return rows
