"""Collect the facts of a pretraining run for its diagnosis, from the files of its directory."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.size import parameter_counts
from beambert.trainers.errors import TrainingError
from beambert.trainers.metrics.baseline_record import BaselineRecord
from beambert.trainers.metrics.diagnosis import UPDATE_RATIO, WEIGHT_RMS, RunFacts, Update, findings_of_run
from beambert.trainers.metrics.standing import LOSS
from beambert.trainers.options import LearningRateSchedule
from beambert.trainers.run_report.finished_run import Run

_INITIALIZER_RANGE = 0.02


def facts_of(
    options: Mapping[str, Any],
    config: Mapping[str, Any],
    baselines: BaselineRecord | None,
    lines: Sequence[Mapping[str, Any]],
    parameters: int | None = None,
) -> RunFacts | None:
    """Return the facts of a run; None if the options lack the schedule, as those of a corrupt file do.

    Args:
        options: options of run.json.
        config: content of bert_config.json.
        baselines: content of baselines.json; None if it is missing.
        lines: training lines of metrics.jsonl, by step.
        parameters: number of parameters; None if unknown.
    """
    names = [field.name for field in dataclasses.fields(LearningRateSchedule)]
    try:
        schedule = LearningRateSchedule(**{name: options[name] for name in names})
    except (KeyError, TrainingError):
        return None
    if schedule.learning_rate is None or schedule.num_train_steps is None or schedule.num_warmup_steps is None:
        return None
    updates = []
    for line in lines:
        ratio, rms = line.get(UPDATE_RATIO), line.get(WEIGHT_RMS)
        if isinstance(ratio, int | float) and isinstance(rms, int | float):
            updates.append(Update(line["step"], ratio, ratio * rms, schedule.rate_at(line["step"] - 1)))
    initial = config.get("initializer_range", _INITIALIZER_RANGE)
    if options.get("init_checkpoint") and lines:
        initial = lines[0].get(WEIGHT_RMS)
    last = lines[-1] if lines else {}
    return RunFacts(
        step=last.get("step", 0),
        num_train_steps=schedule.num_train_steps,
        num_warmup_steps=schedule.num_warmup_steps,
        learning_rate=schedule.learning_rate,
        initial_rms=initial if _is_number(initial) and initial > 0 else _INITIALIZER_RANGE,
        losses=[(line["step"], line[LOSS]) for line in lines if _is_number(line.get(LOSS))],
        updates=updates,
        levels={name: level.loss for name, level in baselines.levels.items()} if baselines else {},
        text=baselines.text if baselines else None,
        tokens=round(last["tokens"]) if _is_number(last.get("tokens")) else 0,
        parameters=parameters,
        is_pretrained=bool(options.get("init_checkpoint")),
    )


def findings_of(run: Run) -> list[str]:
    """Return the findings of `beambert.trainers.metrics.diagnosis` about a pretraining run, one line each."""
    if run.task is not None:
        return []
    facts = facts_of(run.options, run.config, run.baselines, run.train, _parameters(run.config))
    return [str(finding) for finding in findings_of_run(facts)] if facts else []


def _parameters(config: Mapping[str, Any]) -> int | None:
    try:
        return parameter_counts(BertConfig.from_json(json.dumps(config))).total
    except ConfigError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
