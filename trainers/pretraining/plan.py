"""Define the validated plan of a pretraining run."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from beambert.bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from beambert.bert_model.config import BertConfig
from beambert.pipelines.dataset import Dataset
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.config.pretrain_config import PretrainConfig
from beambert.trainers.data.dynamic_masking import MaskRatePhase
from beambert.trainers.optimization.schedule import Stage, plan_stages
from beambert.trainers.training.run_manifest import RunRecord


class PretrainingPlan(NamedTuple):
    """The validated inputs of a run, before TensorFlow starts.

    Attributes:
        requested: configuration before its defaults were resolved.
        config: resolved configuration.
        directories: the directories of --data.
        datasets: manifest of each directory.
        vocabulary: the vocabulary that all datasets share.
        stages: all stages of training.
        model_config: configuration of the model.
        causal_attention: whether the model uses causal attention.
        record: content of the new `run.json`.
        output: the run directory.
        initial: checkpoint with the initial weights of a new run, or None.
        mask_rates: phases of the masking rate; empty for the rate of the data.
        start: time of the clock at which the command started, in seconds.
        clock: monotonic clock in seconds.
        needs_steps: whether the number of steps is provisional, until the speed is measured for --max_train_time.
    """

    requested: PretrainConfig
    config: PretrainConfig
    directories: tuple[Path, ...]
    datasets: tuple[Dataset, ...]
    vocabulary: Vocabulary
    stages: list[Stage]
    model_config: BertConfig
    causal_attention: bool
    record: RunRecord
    output: Path
    initial: OpenCheckpoint | None
    mask_rates: tuple[MaskRatePhase, ...]
    start: float
    clock: Callable[[], float]
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
        return self._replace(config=config, stages=stages, record=record, needs_steps=False)
