"""Render `report.html` of a run from the files in its directory.

The report shows all metrics in `metrics.jsonl`, of any task. `beambert.trainers.run_report.task_sections` shows
`evaluation.json` of a fine-tuning run.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints.variable_names import PRETRAINING
from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.size import parameter_counts
from beambert.common.atomic_files import write_atomic
from beambert.common.durations import format_duration
from beambert.pipelines.reporting.page import page, tiles, warning_list
from beambert.pipelines.reporting.tables import percent, short, table
from beambert.trainers.metrics.chance_levels import PRETRAINING_COUNTS, is_level, level_of
from beambert.trainers.metrics.standing import LOSS as MASKED_LM_LOSS
from beambert.trainers.monitoring.goodput import LABELS, latest_seconds
from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS
from beambert.trainers.monitoring.mlm_samples import FILLED
from beambert.trainers.run_report import curves, task_sections
from beambert.trainers.run_report.curves import curve
from beambert.trainers.run_report.finished_run import Run, read_run
from beambert.trainers.run_report.levels_section import levels_section
from beambert.trainers.run_report.published_scores import IN_PERCENT
from beambert.trainers.run_report.run_facts import findings_of
from beambert.trainers.run_report.run_warnings import score_warnings, warnings_of
from beambert.trainers.run_report.task_style import STYLE

FILE_NAME = "report.html"
_SPEEDS = (
    "sequences_per_second",
    "tokens_per_second",
    "unpadded_tokens_per_second",
    "model_flops_utilization",
    "data_wait_fraction",
)
# Fields of metrics.jsonl that are not metrics.
_COUNTS = {"split", "step", "examples", "tokens", "skipped_steps", "mlm_samples", "global_step"} | TIMING_FIELDS
# Counts of the SQuAD script, which are the same in every evaluation.
_COUNTS |= {"total", "HasAns_total", "NoAns_total", *PRETRAINING_COUNTS}
# Metrics with labels other than their names; they come first.
_LABELS = {
    "loss": "loss",
    "masked_lm_loss": "masked-LM loss",
    "masked_lm_accuracy": "masked-LM accuracy",
    "next_sentence_loss": "next-sentence loss",
    "next_sentence_accuracy": "next-sentence accuracy",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm before clipping",
    "update_ratio": "update-to-weight ratio",
    "weight_rms": "root mean square of the weights",
    "sequences_per_second": "sequences per second",
    "tokens_per_second": "tokens per second, with padding",
    "unpadded_tokens_per_second": "tokens per second, without padding",
    "model_flops_utilization": "model FLOPs utilization (MFU)",
    "data_wait_fraction": "fraction of time spent waiting for data",
}
_EVALUATIONS_SHOWN = 20


def write_report(output: Path) -> Path:
    """Write `report.html` of a run directory.

    Returns:
        Path of the report.

    Raises:
        OSError: the report cannot be written.
    """
    path = output / FILE_NAME
    write_atomic(path, render(read_run(output)).encode())
    return path


def render(run: Run) -> str:
    """Return the report of a run as HTML."""
    metrics = run.results or (run.validation[-1] if run.validation else {})
    warnings = [
        *warnings_of(run.options, run.train, run.validation),
        *findings_of(run),
        *score_warnings(metrics, run.evaluation),
    ]
    sections = [
        ("warnings", "Warnings", warning_list(warnings)),
        *task_sections.sections(run.evaluation, run.results),
        ("levels", "Levels", levels_section(run)),
        ("curves", "Curves", _curves(run, [name for name in _metrics(run) if name not in _SPEEDS])),
        ("speed", "Throughput", _curves(run, _SPEEDS)),
        ("goodput", "Goodput", _goodput(run)),
        ("evaluation", "Evaluation", _evaluation(run)),
        ("masks", "Masked-LM samples", _masks(run)),
        ("checkpoints", "Checkpoints", _checkpoint_table(run)),
        ("data", "Data", _data(run)),
        ("model", "Model", _model(run)),
        ("options", "Options", _facts(run.options)),
        ("versions", "Versions", _facts(run.record.get("versions", {}))),
    ]
    title = f"Fine-tuning: {run.task}" if run.task else "Pretraining run"
    style = STYLE if run.task else curves.STYLE
    return page(title, _head(run), [section for section in sections if section[2]], style)


def _head(run: Run) -> str:
    total = run.options.get("num_train_steps")
    last = run.train[-1] if run.train else {}
    numbers = [("steps", f"{run.step:,}" + (f" of {total:,}" if isinstance(total, int) and total != run.step else ""))]
    for name, label, formatted in (
        ("examples", "training examples", short),
        ("tokens", "training tokens", short),
        ("seconds", "training time", format_duration),
    ):
        if isinstance(last.get(name), int | float):
            numbers.append((label, formatted(last[name])))
    for name in ("sequences_per_second", "model_flops_utilization"):
        values = [line[name] for line in run.train if isinstance(line.get(name), int | float)]
        if values:
            # The median is robust against other load on the machine.
            numbers.append((_label(name).partition(" (")[0], _shown(name, sorted(values)[len(values) // 2])))
    results = run.results or (run.validation[-1] if run.validation else {})
    for name in _metrics(run):
        if isinstance(results.get(name), int | float) and len(numbers) < 12:
            split = "" if name.startswith("test_") else "dev " if run.task else "validation "
            label = f"{split}{_label(name)}"
            numbers.append((label, _shown_beside_chance(name, results)))
    model = run.options.get("model")
    about = [f"Model {model}" if isinstance(model, str) else "", *(_parameters(run),)]
    return f'<p class="soft">{escape(", ".join(filter(None, about)))}</p>{tiles(numbers)}'


def _metrics(run: Run) -> list[str]:
    """Return the names of all metrics: those of pretraining, of a task, of the optimizer, and throughput."""
    lines = [*run.train, *run.validation, run.results]
    names = {
        name
        for line in lines
        for name, value in line.items()
        if isinstance(value, int | float) and name not in _COUNTS and not is_level(name)
    }
    known = [name for name in _LABELS if name in names]
    later = known.index("learning_rate") if "learning_rate" in known else len(known)
    return [*known[:later], *sorted(names - _LABELS.keys()), *known[later:]]


def _label(name: str) -> str:
    return _LABELS.get(name) or task_sections.metric_label(name)


def _shown(name: str, value: float) -> str:
    """Return a value formatted in the unit of its metric."""
    if name.endswith(("_fraction", "_utilization")):
        return percent(value)
    if name in IN_PERCENT:
        return f"{value:.2f}%"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:.2e}"


def _shown_beside_chance(name: str, metrics: Mapping[str, Any]) -> str:
    """Return a formatted metric, with its chance level if any."""
    level = level_of(name, metrics)
    return _shown(name, metrics[name]) + ("" if level is None else f" ({level[0]} {_shown(name, level[1])})")


def _curves(run: Run, names: Sequence[str]) -> str:
    figures = [
        curve(
            _label(name),
            _series(run.train, name),
            _series(run.validation, name),
            partial(_shown, name),
            _levels_of(run, name),
        )
        for name in names
    ]
    return f'<div class="figures">{"".join(figures)}</div>' if any(figures) else ""


def _levels_of(run: Run, name: str) -> dict[str, float]:
    """Return the levels to draw in the figure of a metric."""
    if name not in (MASKED_LM_LOSS, "masked_lm_accuracy"):
        return {}
    is_loss = name == MASKED_LM_LOSS
    return {level: fields.loss if is_loss else fields.accuracy for level, fields in run.levels.items()}


def _series(lines: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(line["step"], line[name]) for line in lines if isinstance(line.get(name), int | float)]


def _goodput(run: Run) -> str:
    """Return a table of the wall time by cause; "" for runs that did not record it."""
    seconds = latest_seconds((*run.train, *run.validation))
    if not seconds.total > 0:
        return ""
    rows = [
        (LABELS[name], format_duration(part), percent(seconds.shares[name]))
        for name, part in seconds._asdict().items()
        if part
    ]
    return (
        "<p>Wall time of all the run's processes. The goodput is the share of training steps whose results were "
        "kept.</p>" + table(("", "time", "share"), [*rows, ("total", format_duration(seconds.total), percent(1.0))])
    )


def _evaluation(run: Run) -> str:
    names = [name for name in _metrics(run) if any(name in line for line in (*run.validation, run.results))]
    rows = [(line["step"], line) for line in run.validation[-_EVALUATIONS_SHOWN:]]
    step = run.results.get("global_step")
    if isinstance(step, int) and step not in {line["step"] for line in run.validation}:
        rows.append((step, run.results))
    if not rows:
        return ""
    shown = [
        (
            f"{step:,}",
            *(_shown_beside_chance(name, line) if isinstance(line.get(name), int | float) else "" for name in names),
        )
        for step, line in rows
    ]
    left_out = len(run.validation) - len(run.validation[-_EVALUATIONS_SHOWN:])
    before = f"<p>The last {_EVALUATIONS_SHOWN} of {len(run.validation):,} evaluations.</p>" if left_out else ""
    return before + table(("step", *(_label(name) for name in names)), shown)


def _masks(run: Run) -> str:
    lines = [line for line in run.validation if isinstance(line.get("mlm_samples"), list)]
    if not lines:
        return ""
    last = lines[-1]
    articles = []
    for text in map(str, last["mlm_samples"]):
        parts, end = [], 0
        for match in FILLED.finditer(text):
            original, predicted, probability = (escape(group) for group in match.groups())
            is_correct = original == predicted
            kind, shown = ("same", original) if is_correct else ("other", f"<s>{original}</s> {predicted}")
            mark = f'<mark class="{kind}">{shown} <small>{probability}</small></mark>'
            parts += [escape(text[end : match.start()]), mark]
            end = match.end()
        articles.append(f'<article class="sample"><p>{"".join(parts)}{escape(text[end:])}</p></article>')
    return (
        f"<p>Predictions at step {last['step']:,} with their probability: "
        '<mark class="same">correct</mark> <mark class="other"><s>original</s> predicted</mark></p>' + "".join(articles)
    )


def _checkpoint_table(run: Run) -> str:
    if not run.checkpoints:
        return ""
    best = run.best.get("step")
    rows = [
        (f"{step:,}", f"{size / 1e6:,.1f} MB", "best" if step == best else "")
        for step, size in reversed(run.checkpoints)
    ]
    metric, value, summary = run.best.get("metric"), run.best.get("value"), ""
    if isinstance(best, int) and isinstance(metric, str) and isinstance(value, int | float):
        summary = f"<p>Best checkpoint: step {best:,}, {escape(_label(metric))} {_shown(metric, value)}.</p>"
    return summary + table(("step", "size", ""), rows)


def _data(run: Run) -> str:
    left_out = {"format", "format_version", "options", "versions", "stages"}
    facts = {name: value for name, value in run.record.items() if name not in left_out}
    stages = run.record.get("stages")
    content = _facts(facts)
    if isinstance(stages, list) and stages and all(isinstance(stage, dict) for stage in stages):
        names = list(dict.fromkeys(name for stage in stages for name in stage))
        header = [name.replace("_", " ") for name in names]
        content += "<h3>Stages</h3>" + table(header, [[_text(stage.get(name)) for name in names] for stage in stages])
    if run.initial:
        lines = "".join(f"<li>{escape(line)}</li>" for line in run.initial[:_EVALUATIONS_SHOWN])
        content += f"<h3>Initial weights</h3><ul>{lines}</ul>"
    return content


def _model(run: Run) -> str:
    parameters = _parameters(run)
    return (f"<p>{escape(parameters)}.</p>" if parameters else "") + _facts(run.config)


def _parameters(run: Run) -> str:
    """Return the number of parameters, including the head; "" if the head is unknown."""
    task, num_labels = run.model.get("task"), run.model.get("num_labels")
    if not run.model and run.task is None:
        task = PRETRAINING
    if not isinstance(task, str) or not isinstance(num_labels, int | None):
        return ""
    try:
        config = BertConfig.from_json(json.dumps(run.config))
        return f"{parameter_counts(config, task, num_labels).total:,} parameters"
    except ConfigError:
        return ""


def _facts(facts: Any) -> str:
    """Return a table of names and values; "" if empty."""
    if not isinstance(facts, dict) or not facts:
        return ""
    return table(("", ""), [(name.replace("_", " "), _text(value)) for name, value in sorted(facts.items())])


def _text(value: Any) -> str:
    if value is None or value == [] or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
