"""Evaluate the current model of a pretraining run on validation splits."""

import sys
from collections.abc import Sequence

from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.backends.backend import Distribution, active_backend
from beambert.trainers.data.pipeline import Batches, InputShard, validation_batches
from beambert.trainers.data.shard_reader import CorruptRecordPolicy
from beambert.trainers.metrics.chance_levels import pretraining_levels
from beambert.trainers.monitoring.mlm_samples import mlm_samples
from beambert.trainers.monitoring.training_progress import warn
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining.plan import PretrainingPlan
from beambert.trainers.training.run_setup import eval_batch_size_of

# Validation examples that are considered for the masked-LM samples.
_SAMPLE_ROWS = 8


class Validation:
    """The evaluation of a pretraining run.

    Args:
        plan: the run's plan.
        distribution: the devices.
        model: the model.
        tasks: the objective of each data directory of the plan, with the model's variables.
    """

    def __init__(
        self, plan: PretrainingPlan, distribution: Distribution, model: BertForPretraining, tasks: Sequence[Objective]
    ) -> None:
        self._plan, self._distribution = plan, distribution
        self._evaluations = [active_backend().evaluation_of(task, distribution) for task in tasks]
        self._masked_lm_logits = active_backend().compiled(
            lambda features: model(features).masked_lm, list(tasks[0].variables.values())
        )
        skip = plan.config.on_corrupt_record == "skip"
        self._corrupt_records = [CorruptRecordPolicy(skip=skip) for _ in plan.datasets]
        # Of the chief, by data index.
        self._chance_levels: dict[int, dict[str, float]] = {}

    def evaluate(self, stage: Stage) -> tuple[dict[str, float], list[str]]:
        """Evaluate the current model on the validation split of a stage's data.

        All metrics are means over all examples: sums of weights and losses are divided once, at the end. The released
        code does the same for the four masked_lm_* and next_sentence_* metrics. Its `loss` is the mean over batches;
        here it is the sum of masked_lm_loss and next_sentence_loss, which does not depend on the batch size.

        Returns:
            The metrics, and masked-LM samples as lines of text; both empty without validation examples.
        """
        directory, dataset = self._plan.directories[stage.data], self._plan.datasets[stage.data]
        config, corrupt_records = self._plan.config, self._corrupt_records[stage.data]
        batch_size = eval_batch_size_of(config, self._distribution)

        def batches(share: InputShard) -> Batches:
            batches = validation_batches(
                directory,
                dataset,
                batch_size,
                config.max_eval_steps,
                **share._asdict(),
                pad_rows=self._distribution.is_tpu,
                corrupt_records=corrupt_records,
            )
            if batches is None:
                raise _NoValidationExamples
            return batches

        try:
            metrics = self._evaluations[stage.data](batches)
            if self._distribution.is_chief and stage.data not in self._chance_levels:
                # The labels of an evaluation are the same at every step.
                self._chance_levels[stage.data] = pretraining_levels(batches(InputShard()), not config.no_next_sentence)
            lines = self._mlm_samples(batches(InputShard()))
        except _NoValidationExamples:
            return {}, []
        if replaced := corrupt_records.num_replaced_before(sys.maxsize):
            warn(f"{replaced} corrupt validation examples in {directory} were replaced by other examples")
        metrics["loss"] = metrics["masked_lm_loss"] + metrics.get("next_sentence_loss", 0.0)
        metrics |= self._chance_levels.get(stage.data, {})
        return metrics, lines

    def _mlm_samples(self, batches: Batches) -> list[str]:
        """Return masked-LM samples of the first validation examples; none on a TPU host of TensorFlow."""
        if self._distribution.is_tpu or not self._distribution.is_chief:
            return []
        features = {name: values[:_SAMPLE_ROWS] for name, values in next(iter(batches)).items()}
        return mlm_samples(features, self._masked_lm_logits(features), self._plan.vocabulary)


class _NoValidationExamples(Exception):
    """A dataset without validation examples."""
