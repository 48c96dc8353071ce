"""The inputs of a fine-tuning run."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from bert_model.config import BertConfig
from tokenizer.vocabulary import Vocabulary
from trainers.config.finetune_config import FinetuneConfig
from trainers.finetuning.finetuning_task import FinetuningTask, Rows
from trainers.optimization.schedule import Stage
from trainers.training.run_manifest import RunRecord

FEATURES_NAME = "features"


class FinetuningPlan(NamedTuple):
    """A fine-tuning run's inputs, checked.

    Attributes:
        config: the options, resolved.
        task: with its files read.
        rows: of every split that was read.
        vocabulary: of the model.
        do_lower_case: whether text is lower-cased.
        model_config: shape of the model.
        causal_attention: whether a position sees only itself and those before it.
        max_seq_length: of a row.
        class_weights: how much a prediction counts by its class, or None.
        stages: of the run; one, none without training.
        record: of the run, from its configuration.
        output: the run's directory.
        initial: the checkpoint that a new run begins with, or that is evaluated alone; None for the run's own.
        keeps_head: whether the head of `initial` is the task's.
    """

    config: FinetuneConfig
    task: FinetuningTask
    rows: Mapping[str, Rows]
    vocabulary: Vocabulary
    do_lower_case: bool
    model_config: BertConfig
    causal_attention: bool
    max_seq_length: int
    class_weights: tuple[float, ...] | None
    stages: list[Stage]
    record: RunRecord
    output: Path
    initial: OpenCheckpoint | None
    keeps_head: bool

    @property
    def num_train_steps(self) -> int:
        """Return the steps of the whole run, 0 without training."""
        return self.stages[-1].end_step if self.stages else 0
