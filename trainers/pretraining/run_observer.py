"""Measure the optimizer during training, and warn once of a run that does not learn."""

import json
from collections.abc import Mapping
from typing import Any

from beambert.bert_model.size import parameter_counts
from beambert.trainers.backends.backend import Trainer
from beambert.trainers.metrics.baseline_record import BaselineRecord
from beambert.trainers.metrics.diagnosis import UPDATE_RATIO, WEIGHT_RMS, findings_of_run
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.training_progress import warn
from beambert.trainers.optimization.update_measures import update_measures
from beambert.trainers.pretraining.plan import PretrainingPlan
from beambert.trainers.run_report.run_facts import facts_of


class RunObserver:
    """Observe the training of a run on the chief.

    Args:
        plan: the run's plan.
        baselines: baselines of its training text; None if they are unknown.
        trainer: the trainer.
        step: number of completed steps.
    """

    def __init__(self, plan: PretrainingPlan, baselines: BaselineRecord | None, trainer: Trainer, step: int) -> None:
        self._trainer, self._baselines = trainer, baselines
        self._options = plan.record.options
        self._config = json.loads(plan.model_config.to_json())
        self._parameters = parameter_counts(plan.model_config).total
        lines = metrics_jsonl.read(plan.output / metrics_jsonl.FILE_NAME)
        self._lines = [line for line in lines if line["split"] == "train" and line["step"] <= step]
        # Causes that were printed, each once.
        self._printed: set[str] = set()

    def measure(self, step: int) -> dict[str, float]:
        """Return `update_measures` of the last of `step` steps."""
        config = self._trainer.config
        rate = config.learning_rate_at(step - 1)
        measures = update_measures(self._trainer.optimizer, float(rate), step - 1)
        return {} if measures is None else {UPDATE_RATIO: measures.ratio, WEIGHT_RMS: measures.weight_rms}

    def observe(self, line: Mapping[str, Any]) -> None:
        """Read a training line, and warn of new findings; those after the last step are part of the summary."""
        self._lines.append(dict(line))
        if line["step"] < self._trainer.config.num_train_steps:
            self.warn()

    def warn(self) -> None:
        """Print the findings that were not printed before."""
        facts = facts_of(self._options, self._config, self._baselines, self._lines, self._parameters)
        for finding in findings_of_run(facts) if facts else []:
            if finding.cause not in self._printed:
                self._printed.add(finding.cause)
                warn(str(finding))
