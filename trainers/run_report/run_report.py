"""Render `report.html` of a run from the files in its directory.

The report shows all metrics in `metrics.jsonl`, of any task. `beambert.trainers.run_report.task_sections` shows
`evaluation.json` of a fine-tuning run.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from markupsafe import Markup

from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.heads import ALL_HEADS, PRETRAINING
from beambert.bert_model.size import parameter_counts
from beambert.common.formatting import format_duration
from beambert.common.local_files import write_atomic
from beambert.reporting import rendering
from beambert.reporting.numbers import percent, short
from beambert.reporting.plots import curve
from beambert.trainers.metrics.baseline_record import LOSS as MASKED_LM_LOSS
from beambert.trainers.metrics.baseline_record import in_order, passed_at, passed_levels, standing
from beambert.trainers.metrics.chance_levels import PRETRAINING_COUNTS, is_level, level_of
from beambert.trainers.metrics.ngram_baselines import BIGRAM, UNCHANGED, UNIGRAM
from beambert.trainers.metrics.reference_curves import reference_at, reference_of
from beambert.trainers.monitoring.goodput import LABELS, latest_seconds
from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS
from beambert.trainers.monitoring.mlm_samples import FILLED
from beambert.trainers.run_report.published_scores import IN_PERCENT
from beambert.trainers.run_report.run_facts import Run, findings_of, read_run
from beambert.trainers.run_report.run_warnings import score_warnings, warnings_of
from beambert.trainers.run_report.task_sections import input_warnings, metric_label, sections

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
_MEANINGS = {
    UNIGRAM: "token frequencies",
    UNCHANGED: "token frequencies, and the masked positions left unchanged",
    BIGRAM: "the same, with the left and the right neighbor",
}
_EVALUATIONS_SHOWN = 20
_MAX_TILES = 12
_Line = Mapping[str, Any]


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
    model, names = run.options.get("model"), _metrics(run)
    return rendering.render(
        "run_report.html",
        title=f"Fine-tuning: {run.task}" if run.task else "Pretraining run",
        model_name=f"Model {model}" if isinstance(model, str) else None,
        parameters=_parameters(run),
        tiles_shown=_tiles(run, names),
        warnings=[
            *warnings_of(run.options, run.train, run.validation),
            *findings_of(run),
            *input_warnings(run.evaluation),
            *score_warnings(_last_results(run), run.evaluation),
        ],
        task_sections=sections(run.evaluation, run.results),
        levels=_levels(run) if run.levels else None,
        curves=_curves(run, [name for name in names if name not in _SPEEDS]),
        speeds=_curves(run, _SPEEDS),
        goodput=_goodput(run),
        **_evaluations(run, names),
        masks=_masks(run),
        **_checkpoints(run),
        **_data(run),
        config=_facts(run.config),
        options=_facts(run.options),
        versions=_facts(run.record.get("versions")),
    )


def _last_results(run: Run) -> _Line:
    return run.results or (run.validation[-1] if run.validation else {})


def _tiles(run: Run, names: Sequence[str]) -> list[tuple[str, str]]:
    total, last = run.options.get("num_train_steps"), run.train[-1] if run.train else {}
    tiles = [("steps", f"{run.step:,}" + (f" of {total:,}" if isinstance(total, int) and total != run.step else ""))]
    for name, label, formatted in (
        ("examples", "training examples", short),
        ("tokens", "training tokens", short),
        ("seconds", "training time", format_duration),
    ):
        if _is_number(last.get(name)):
            tiles.append((label, formatted(last[name])))
    for name in ("sequences_per_second", "model_flops_utilization"):
        if values := sorted(value for _, value in _series(run.train, name)):
            # The median is robust against other load on the machine.
            tiles.append((_label(name).partition(" (")[0], _shown(name, values[len(values) // 2])))
    results = _last_results(run)
    split = "dev " if run.task else "validation "
    tiles += [
        (f"{'' if name.startswith('test_') else split}{_label(name)}", _shown_beside_chance(name, results))
        for name in names
        if _is_number(results.get(name))
    ]
    return tiles[:_MAX_TILES]


def _metrics(run: Run) -> list[str]:
    """Return the names of all metrics: those of pretraining, of a task, of the optimizer, and throughput."""
    names = {
        name
        for line in (*run.train, *run.validation, run.results)
        for name, value in line.items()
        if _is_number(value) and name not in _COUNTS and not is_level(name)
    }
    known = [name for name in _LABELS if name in names]
    later = known.index("learning_rate") if "learning_rate" in known else len(known)
    return [*known[:later], *sorted(names - _LABELS.keys()), *known[later:]]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float)


def _label(name: str) -> str:
    return _LABELS.get(name) or metric_label(name)


def _shown(name: str, value: float) -> str:
    """Return a value formatted in the unit of its metric."""
    if name.endswith(("_fraction", "_utilization")):
        return percent(value)
    if name in IN_PERCENT:
        return f"{value:.2f}%"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:.2e}"


def _shown_beside_chance(name: str, metrics: _Line) -> str:
    """Return a formatted metric, with its chance level if any."""
    level = level_of(name, metrics)
    return _shown(name, metrics[name]) + ("" if level is None else f" ({level[0]} {_shown(name, level[1])})")


def _levels(run: Run) -> dict[str, Any]:
    """Return where a pretraining run stands: the levels of its text, when it passed each, and a reference run."""
    splits = {"training": run.train, "validation": run.validation}
    passed = {split: passed_at(lines, run.levels) for split, lines in splits.items()}
    left = [f"{split} at step {steps[UNCHANGED]:,}" for split, steps in passed.items() if UNCHANGED in steps]
    plateau = f"The plateau was left by {' and '.join(left)}" if left else "The plateau was not left"
    now = []
    for split, lines in reversed(splits.items()):
        if lines and (words := standing(lines[-1], run.levels)):
            lost = [name for name in passed[split] if name not in passed_levels(lines[-1], run.levels)]
            before = f", after it had passed {lost[-1]} at step {passed[split][lost[-1]]:,}" if lost else ""
            now.append(f"{split} {words} at step {lines[-1]['step']:,}{before}")
    return {
        "standing": "; ".join(now).capitalize(),
        "plateau": plateau if UNCHANGED in run.levels else None,
        "rows": [
            (
                name,
                _MEANINGS.get(name, ""),
                f"{run.levels[name].loss:.3f}",
                f"{run.levels[name].accuracy:.3f}",
                *(f"step {steps[name]:,}" if name in steps else "not yet" for steps in passed.values()),
            )
            for name in in_order(run.levels)
        ],
        "reference": _reference(run),
    }


def _reference(run: Run) -> tuple[Any, ...] | None:
    """Return the reference run of the same size: its model, data, and losses at the same number of tokens."""
    reference = reference_of(run.config)
    tokens = _series((run.validation or run.train)[-1:], "tokens")
    if reference is None or not tokens:
        return None
    point = reference_at(reference, tokens[0][1])
    return None if point is None else (reference.model, reference.data, point)


def _curves(run: Run, names: Sequence[str]) -> list[Markup]:
    plots = (
        curve(
            _label(name),
            _series(run.train, name),
            _series(run.validation, name),
            partial(_shown, name),
            _drawn_levels(run, name),
        )
        for name in names
    )
    return [plot for plot in plots if plot]


def _drawn_levels(run: Run, name: str) -> dict[str, float]:
    """Return the levels to draw in the figure of a metric."""
    if name == MASKED_LM_LOSS:
        return {level: fields.loss for level, fields in run.levels.items()}
    return {level: fields.accuracy for level, fields in run.levels.items()} if name == "masked_lm_accuracy" else {}


def _series(lines: Sequence[_Line], name: str) -> list[tuple[int, float]]:
    return [(line["step"], line[name]) for line in lines if _is_number(line.get(name))]


def _goodput(run: Run) -> list[tuple[str, str, str]]:
    """Return the wall time by cause; empty for runs that did not record it."""
    seconds = latest_seconds((*run.train, *run.validation))
    if not seconds.total > 0:
        return []
    rows = [
        (LABELS[name], format_duration(part), percent(seconds.shares[name]))
        for name, part in seconds._asdict().items()
        if part
    ]
    return [*rows, ("total", format_duration(seconds.total), percent(1.0))]


def _evaluations(run: Run, metrics: Sequence[str]) -> dict[str, Any]:
    names = [name for name in metrics if any(name in line for line in (*run.validation, run.results))]
    lines = [(line["step"], line) for line in run.validation[-_EVALUATIONS_SHOWN:]]
    step = run.results.get("global_step")
    if isinstance(step, int) and step not in {line["step"] for line in run.validation}:
        lines.append((step, run.results))
    return {
        "evaluation_metrics": list(map(_label, names)),
        "evaluations": [
            (step, *(_shown_beside_chance(name, line) if _is_number(line.get(name)) else "" for name in names))
            for step, line in lines
        ],
        "evaluations_shown": _EVALUATIONS_SHOWN,
        "more_evaluations": len(run.validation) if len(run.validation) > _EVALUATIONS_SHOWN else 0,
    }


def _masks(run: Run) -> dict[str, Any] | None:
    """Return the last samples, each as (text, original, predicted, probability) with a text alone at the end."""
    lines = [line for line in run.validation if isinstance(line.get("mlm_samples"), list)]
    if not lines:
        return None
    parts = [[*FILLED.split(str(text)), None, None, None] for text in lines[-1]["mlm_samples"]]
    samples = [list(zip(*(sample[i::4] for i in range(4)), strict=True)) for sample in parts]
    return {"step": lines[-1]["step"], "samples": samples}


def _checkpoints(run: Run) -> dict[str, Any]:
    step, metric, value = (run.best.get(name) for name in ("step", "metric", "value"))
    best = None
    if isinstance(step, int) and isinstance(metric, str) and _is_number(value):
        best = {"step": step, "metric": _label(metric), "value": _shown(metric, value)}
    rows = [(saved, f"{size / 1e6:,.1f} MB", "best" if saved == step else "") for saved, size in run.checkpoints]
    return {"checkpoints": rows[::-1], "best": best}


def _data(run: Run) -> dict[str, Any]:
    left_out = {"format", "format_version", "options", "versions", "stages"}
    stages = run.record.get("stages")
    table = None
    if isinstance(stages, list) and stages and all(isinstance(stage, dict) for stage in stages):
        names = list(dict.fromkeys(name for stage in stages for name in stage))
        rows = [[_text(stage.get(name)) for name in names] for stage in stages]
        table = {"names": [name.replace("_", " ") for name in names], "rows": rows}
    return {
        "data": _facts({name: value for name, value in run.record.items() if name not in left_out}),
        "stages": table,
        "initial": run.initial[:_EVALUATIONS_SHOWN],
    }


def _parameters(run: Run) -> str | None:
    """Return the number of parameters, including the head; None if the head is unknown."""
    task, num_labels = run.model.get("task"), run.model.get("num_labels")
    if not run.model and run.task is None:
        task = PRETRAINING.name
    if task not in ALL_HEADS or not isinstance(num_labels, int | None):
        return None
    try:
        config = BertConfig.from_json(json.dumps(run.config))
        return f"{parameter_counts(config, ALL_HEADS[task], num_labels).total:,} parameters"
    except ConfigError:
        return None


def _facts(facts: Any) -> list[tuple[str, str]]:
    """Return names and values as rows of a table."""
    if not isinstance(facts, dict):
        return []
    return [(name.replace("_", " "), _text(value)) for name, value in sorted(facts.items())]


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
