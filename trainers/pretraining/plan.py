"""Define the validated plan of a pretraining run."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from beambert.pipelines.dataset import Dataset
from beambert.trainers.data.dynamic_masking import MaskRatePhase
from beambert.trainers.optimization.schedule import Stage, plan_stages
from beambert.trainers.pretraining.options import PretrainOptions
from beambert.trainers.training_plan import TrainingPlan


@dataclass(frozen=True, kw_only=True)
class PretrainingPlan(TrainingPlan):
    """The validated inputs of a pretraining run, before Keras is imported.

    Attributes:
        requested: configuration before its defaults were resolved.
        config: resolved configuration.
        directories: the directories of --data.
        datasets: manifest of each directory; all have the same vocabulary.
        mask_rates: phases of the masking rate; empty for the rate of the data.
        needs_steps: whether the number of steps is provisional, until the speed is measured for --max_train_time.
    """

    requested: PretrainOptions
    config: PretrainOptions
    directories: tuple[Path, ...]
    datasets: tuple[Dataset, ...]
    mask_rates: tuple[MaskRatePhase, ...]
    needs_steps: bool

    @property
    def next_sentence(self) -> bool:
        """Return whether next-sentence prediction is trained: some of the data has labels for it."""
        return not self.config.no_next_sentence and any(
            "next_sentence_labels" in dataset.features for dataset in self.datasets
        )

    def stages_of(self, num_train_steps: int) -> list[Stage]:
        """Return the stages of a number of training steps. Raises TrainingError if a phase is shorter than a step."""
        row_lengths = [dataset.max_seq_length for dataset in self.datasets]
        config = self.requested
        return plan_stages(num_train_steps, row_lengths, config.schedule, config.train_batch_size, config.batch_ramp)

    def with_steps(self, num_train_steps: int) -> "PretrainingPlan":
        """Return the plan with the final number of training steps.

        Raises:
            TrainingError: a phase is shorter than a step, or warm-up is not shorter than the training.
        """
        requested = dataclasses.replace(self.requested, num_train_steps=num_train_steps)
        config = requested.resolved(self.model_config, self.config.causal_attention)
        stages = self.stages_of(num_train_steps)
        record = dataclasses.replace(self.record, stages=tuple(stages), options=config.to_json())
        return dataclasses.replace(self, config=config, stages=stages, record=record, needs_steps=False)
