"""Define the validated plan of a fine-tuning run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beambert.common.word_rules import WordRules
from beambert.trainers.finetuning.finetuning_task import FinetuningTask, Rows
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.training_plan import TrainingPlan

# Directory of the encoded rows in a run directory.
FEATURES_NAME = "features"


@dataclass(frozen=True, kw_only=True)
class FinetuningPlan(TrainingPlan):
    """The validated inputs of a fine-tuning run, before Keras is imported.

    Attributes:
        config: resolved options.
        task: the task with its files.
        rows: encoded rows by split.
        unknown_tokens: warnings about [UNK] by split, where they are many.
        input_warnings: warnings about truncated, empty and skipped examples, by split.
        word_rules: rules that split text into words.
        max_seq_length: maximum length of a row, in tokens.
        class_weights: weight of a prediction by its class; None for 1 each.
        keeps_head: whether the head of `initial` is that of the task.
    """

    config: FinetuneOptions
    task: FinetuningTask
    rows: Mapping[str, Rows]
    unknown_tokens: Mapping[str, str]
    input_warnings: Mapping[str, Sequence[str]]
    word_rules: WordRules
    max_seq_length: int
    class_weights: tuple[float, ...] | None
    keeps_head: bool
