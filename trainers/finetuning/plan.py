"""The inputs of a fine-tuning run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from beambert.bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from beambert.bert_model.config import BertConfig
from beambert.common.word_rules import WordRules
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.finetuning.finetuning_task import FinetuningTask, Rows
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.training.run_manifest import RunRecord

FEATURES_NAME = "features"


class FinetuningPlan(NamedTuple):
    """The validated inputs of a fine-tuning run.

    Attributes:
        config: resolved options.
        task: the task with its files.
        rows: encoded rows by split.
        unknown_tokens: warnings about [UNK] by split, where they are many.
        input_warnings: warnings about truncated, empty and skipped examples, by split.
        vocabulary: vocabulary of the model.
        word_rules: rules that split text into words.
        model_config: configuration of the model.
        causal_attention: whether a position attends only to itself and earlier positions.
        max_seq_length: maximum length of a row, in tokens.
        class_weights: weight of a prediction by its class; None for 1 each.
        stages: stages of the schedule: one, or none without training.
        record: content of run.json.
        output: output directory.
        initial: initial checkpoint of a new run or of an evaluation; None for the run's own checkpoint.
        keeps_head: whether the head of `initial` is that of the task.
        records_evaluation: whether the metrics of the evaluation are written to metrics.jsonl and the model card: in
            training, and on the run's own development examples.
        start: monotonic time at which the command started, in seconds.
    """

    config: FinetuneOptions
    task: FinetuningTask
    rows: Mapping[str, Rows]
    unknown_tokens: Mapping[str, str]
    input_warnings: Mapping[str, Sequence[str]]
    vocabulary: Vocabulary
    word_rules: WordRules
    model_config: BertConfig
    causal_attention: bool
    max_seq_length: int
    class_weights: tuple[float, ...] | None
    stages: list[Stage]
    record: RunRecord
    output: Path
    initial: OpenCheckpoint | None
    keeps_head: bool
    records_evaluation: bool
    start: float

    @property
    def num_train_steps(self) -> int:
        """Return the number of training steps, 0 without training."""
        return self.stages[-1].end_step if self.stages else 0
