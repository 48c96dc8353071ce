"""Several runs of one task beside each other, of `--seeds` and of `beambert tune`: table, mean, deviation, best."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from beambert_common.atomic_files import write_atomic
from pipelines.reporting.page import page, tiles, warning_list
from pipelines.reporting.tables import table
from trainers.checkpoints.best_checkpoint import lower_is_better
from trainers.metrics.chance_levels import is_level, level_of, with_level
from trainers.run_report.published_scores import IN_PERCENT
from trainers.run_report.task_sections import metric_label
from trainers.run_report.task_style import STYLE

FILE_NAME = "report.html"


class RunOutcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        name: of the run, as of its directory.
        options: in which the runs differ, as they are typed.
        metrics: of its evaluation; None if it did not get so far.
        problem: why it did not; None if it did, or has not been run yet.
        warnings: about its scores.
    """

    name: str
    options: Mapping[str, str]
    metrics: Mapping[str, float] | None
    problem: str | None
    warnings: tuple[str, ...] = ()


class Summary(NamedTuple):
    """A summary of the runs that have a metric.

    Attributes:
        runs: how many they are.
        mean: of the metric.
        deviation: its standard deviation over n - 1, None of a single run.
        best: place among all runs of the best, the first of equals.
    """

    runs: int
    mean: float
    deviation: float | None
    best: int


def summary(runs: Sequence[RunOutcome], metric: str) -> Summary | None:
    """Return mean, deviation and best of some runs; None if no run has the metric as a finite number.

    Raises:
        TrainingError: whether a high or a low metric is better is not known.
    """
    values = {place: value for place, run in enumerate(runs) if (value := _value(run, metric)) is not None}
    if not values:
        return None
    sign = -1.0 if lower_is_better(metric) else 1.0
    best = max(values, key=lambda place: (sign * values[place], -place))
    mean, deviation = mean_and_deviation(list(values.values()))
    return Summary(len(values), mean, deviation, best)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and the standard deviation over n - 1, None of a single value.

    Args:
        values: one or more.
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def shown(metric: str, value: float) -> str:
    """Return a metric with enough digits to distinguish runs."""
    return f"{value:.2f}" if metric in IN_PERCENT else f"{value:.4f}"


def summary_line(runs: Sequence[RunOutcome], metric: str) -> str:
    """Return the summary in a line, for a terminal and for the page."""
    results = summary(runs, metric)
    if results is None:
        return f"No run has been scored by {metric_label(metric)}."
    spread = "" if results.deviation is None else f", deviation {shown(metric, results.deviation)}"
    best = _value(runs[results.best], metric)
    assert best is not None
    count = f"{results.runs} run{'s' if results.runs > 1 else ''}"
    level = level_of(metric, runs[results.best].metrics or {})
    return (
        f"{metric_label(metric)} of {count}: mean {shown(metric, results.mean)}{spread}; "
        f"best {shown(metric, best)} ({runs[results.best].name})"
        + ("" if level is None else f"; {level[0]} {shown(metric, level[1])}")
    )


def warnings_of_runs(runs: Sequence[RunOutcome]) -> list[str]:
    """Return the warnings about the scores of all runs, equal ones once, with the runs that they are about."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for line in run.warnings:
            names.setdefault(line, []).append(run.name)
    return [f"{', '.join(concerned)}: {line}" for line, concerned in names.items()]


def write_runs_report(output: Path, title: str, runs: Sequence[RunOutcome], metric: str) -> Path:
    """Write `report.html` about some runs into their common directory.

    Args:
        output: the directory.
        title: of the page.
        runs: in the order in which they are shown.
        metric: by which the best is chosen.

    Returns:
        Its path.

    Raises:
        OSError: it cannot be written.
        TrainingError: whether a high or a low metric is better is not known.
    """
    path = output / FILE_NAME
    write_atomic(path, runs_page(title, runs, metric).encode())
    return path


def runs_page(title: str, runs: Sequence[RunOutcome], metric: str) -> str:
    """Return the page of `write_runs_report`."""
    results = summary(runs, metric)
    numbers = [("runs", f"{len(runs):,}")]
    if results is not None:
        best = _value(runs[results.best], metric)
        assert best is not None
        label = metric_label(metric)
        numbers += [(f"best {label}", shown(metric, best)), (f"mean {label}", shown(metric, results.mean))]
        level = level_of(metric, runs[results.best].metrics or {})
        if level is not None:
            numbers.append((level[0], shown(metric, level[1])))
        if results.deviation is not None:
            numbers.append(("deviation", shown(metric, results.deviation)))
    problems = [f"{run.name}: {run.problem}" for run in runs if run.problem] + warnings_of_runs(runs)
    sections = [
        ("problems", "What to look at", warning_list(problems) if problems else ""),
        ("runs", "Runs", f"<p>{escape(summary_line(runs, metric))}</p>{_runs_table(runs, metric, results)}"),
        ("options", "By option", _by_option(runs, metric)),
    ]
    return page(title, tiles(numbers), [section for section in sections if section[2]], STYLE)


def _value(run: RunOutcome, metric: str) -> float | None:
    value = (run.metrics or {}).get(metric)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _runs_table(runs: Sequence[RunOutcome], metric: str, results: Summary | None) -> str:
    options = list(dict.fromkeys(name for run in runs for name in run.options))
    names = {name for run in runs for name in run.metrics or {} if name != "global_step" and not is_level(name)}
    # What google calls loss is eval_loss once more.
    metrics = [metric, *sorted(names - {metric} - ({"loss"} if "eval_loss" in names else set()))]
    rows = []
    for place, run in enumerate(runs):
        values = [_value(run, name) for name in metrics]
        numbers = ["" if value is None else shown(name, value) for name, value in zip(metrics, values, strict=True)]
        if results is not None and place == results.best:
            note = "best"
        else:
            note = "failed" if run.problem else "" if run.metrics else "not run"
        rows.append((run.name, note, *(run.options.get(name, "") for name in options), *numbers))
    labels = (with_level(metric_label(name), name, _common_levels(runs), ".4f") for name in metrics)
    header = ("run", "", *(name.replace("_", " ") for name in options), *labels)
    return table(header, rows)


def _common_levels(runs: Sequence[RunOutcome]) -> dict[str, float]:
    """Return the chance levels that all runs have in common, having been scored on the same examples."""
    scored = [run.metrics for run in runs if run.metrics]
    levels = {name: value for name, value in (scored[0] if scored else {}).items() if is_level(name)}
    return {name: value for name, value in levels.items() if all(metrics.get(name) == value for metrics in scored)}


def _by_option(runs: Sequence[RunOutcome], metric: str) -> str:
    """Return the mean of all runs with the same value of an option, for every option with several values."""
    rows = []
    for option in dict.fromkeys(name for run in runs for name in run.options):
        groups: dict[str, list[float]] = {}
        for run in runs:
            score = _value(run, metric)
            if option in run.options and score is not None:
                groups.setdefault(run.options[option], []).append(score)
        # An option with another value in every run, such as a seed, has no mean over several.
        if len(groups) < 2 or max(map(len, groups.values())) < 2:
            continue
        best = min if lower_is_better(metric) else max
        for setting, scores in groups.items():
            mean, deviation = mean_and_deviation(scores)
            spread = "" if deviation is None else shown(metric, deviation)
            numbers = (shown(metric, mean), spread, shown(metric, best(scores)))
            rows.append((option.replace("_", " "), setting, f"{len(scores)}", *numbers))
    return table(("option", "value", "runs", "mean", "deviation", "best"), rows) if rows else ""
