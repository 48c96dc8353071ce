"""Read the files of a run directory for its report, and collect the facts of a pretraining run for its diagnosis."""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert.bert_model.checkpoints import native
from beambert.bert_model.config import BertConfig, ConfigError
from beambert.bert_model.size import parameter_counts
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.errors import TrainingError
from beambert.trainers.metrics import baseline_record
from beambert.trainers.metrics.baseline_record import LOSS, BaselineRecord, LevelFields
from beambert.trainers.metrics.diagnosis import UPDATE_RATIO, WEIGHT_RMS, RunFacts, Update, findings_of_run
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.options import LearningRateSchedule
from beambert.trainers.run_report.run_warnings import EVALUATION_NAME, json_in, results_in
from beambert.trainers.training import run_manifest

_INITIALIZER_RANGE = 0.02


@dataclasses.dataclass(frozen=True)
class Run:
    """The files of a run directory. The content of a missing or invalid file is empty.

    Attributes:
        record: content of run.json.
        config: content of bert_config.json.
        model: content of beambert.json.
        train, validation: lines of metrics.jsonl, by step.
        results: content of eval_results.json.
        best: content of best.json: step, metric, value.
        checkpoints: (step, size in bytes) of the complete checkpoints, oldest first.
        initial: lines of init_checkpoint.txt, which initial weights were loaded.
        evaluation: content of evaluation.json, the predictions of a fine-tuned model.
        baselines: content of baselines.json; None for fine-tuning, and if it is missing.
    """

    record: Mapping[str, Any]
    config: Mapping[str, Any]
    model: Mapping[str, Any]
    train: Sequence[Mapping[str, Any]]
    validation: Sequence[Mapping[str, Any]]
    results: Mapping[str, Any]
    best: Mapping[str, Any]
    checkpoints: Sequence[tuple[int, int]]
    initial: Sequence[str]
    evaluation: Mapping[str, Any]
    baselines: BaselineRecord | None = None

    @property
    def levels(self) -> Mapping[str, LevelFields]:
        """Return the masked-LM levels of the training text by name."""
        return self.baselines.levels if self.baselines else {}

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the options of the command."""
        options = self.record.get("options")
        return options if isinstance(options, dict) else {}

    @property
    def task(self) -> str | None:
        """Return the fine-tuning task; None for pretraining."""
        names = [name for name in (self.options.get("task"), self.evaluation.get("task")) if isinstance(name, str)]
        return names[0] if names else None

    @property
    def step(self) -> int:
        """Return the last recorded step."""
        steps = [line["step"] for line in (*self.train, *self.validation)]
        return max([*steps, *(step for step, _ in self.checkpoints)], default=0)


def read_run(output: Path) -> Run:
    """Return the content of a run directory, without missing or invalid files."""
    lines = sorted(
        map(_with_one_loss, metrics_jsonl.read(output / metrics_jsonl.FILE_NAME)), key=lambda line: line["step"]
    )
    initial = output / run_manifest.INITIAL_WEIGHTS_NAME
    results = _with_one_loss(results_in(output))
    validation = [line for line in lines if line["split"] == "validation"]
    evaluation_names = {name for line in (*validation, results) for name in line}
    return Run(
        record=json_in(output / run_manifest.FILE_NAME),
        config=json_in(output / native.CONFIG_FILE_NAME),
        model=json_in(output / native.FILE_NAME),
        train=[_as_evaluated(line, evaluation_names) for line in lines if line["split"] == "train"],
        validation=validation,
        results=results,
        best=json_in(output / native.CHECKPOINTS_NAME / checkpoint_manager.BEST_FILE_NAME),
        checkpoints=_checkpoints(output / native.CHECKPOINTS_NAME),
        initial=initial.read_text(encoding="utf-8", errors="replace").splitlines() if initial.is_file() else [],
        evaluation=json_in(output / EVALUATION_NAME),
        baselines=baseline_record.load(output),
    )


def _as_evaluated(line: Mapping[str, Any], evaluation_names: Collection[str]) -> dict[str, Any]:
    """Return training metrics under their evaluation names, so that a figure shows both."""
    return {f"eval_{name}" if f"eval_{name}" in evaluation_names else name: value for name, value in line.items()}


def _with_one_loss(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return fine-tuning metrics with a single loss, which training and evaluation name differently."""
    unchanged = {name: value for name, value in metrics.items() if name not in ("eval_loss", "task_loss")}
    return {"loss": metrics["eval_loss"], **unchanged} if "eval_loss" in metrics else unchanged


def _checkpoints(directory: Path) -> list[tuple[int, int]]:
    return [
        (step, sum(path.stat().st_size for path in directory.glob(f"{prefix.name}.*")))
        for step, prefix in checkpoint_manager.checkpoints(directory)
    ]


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
            updates.append(Update(line["step"], ratio, ratio * rms, float(schedule.rate_at(line["step"] - 1))))
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
