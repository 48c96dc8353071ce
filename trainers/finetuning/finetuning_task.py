"""The interface of a fine-tuning task: files become rows of numbers, and logits become answers.

A task does not depend on TensorFlow, nor the run on files and answers. Letters in shapes: N rows, C choices of a
row, T tokens of all rows together, S_i tokens of row i, n labels.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tokenizer.tokenizer import Tokenizer

TRAIN, DEV, TEST = "train", "dev", "test"

# By the head of the task (`bert_model.checkpoints.variable_names.TASKS`):
#   classification        float32 [N, n]
#   regression            float32 [N]
#   multiple_choice       float32 [N, C]
#   span                  N arrays float32 [2, S_i], start and end
#   token_classification  N arrays float32 [S_i, n]
Logits = Sequence[np.ndarray] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Rows:
    """The model's input: rows of tokens, one after the other, with [CLS] and [SEP] and without padding.

    Everything is an array or a number, so that it can be kept in a file.

    Attributes:
        ids: int32 [T].
        segment_ids: int32 [T].
        row_splits: int64 [N * C + 1]; row i has `ids[row_splits[i]:row_splits[i + 1]]`. The choices of a row follow
            each other.
        targets: what the loss compares with; empty where the file has no labels.
            classification: label_ids int32 [N], or label_values float32 [N, n] where a row may have several labels;
            regression: label_values float32 [N]; multiple_choice: label_ids int32 [N];
            span: start_positions and end_positions int32 [N], places in the row, 0 for no answer;
            token_classification: label_ids int32 [T], -1 where nothing is predicted.
        choices: C, 1 but for multiple_choice.
        truncated: examples that were cut to fit.
        skipped: examples that were left out, since their answer cannot be found.
        extras: arrays that only the task itself reads, to get back from rows to text.
    """

    ids: np.ndarray
    segment_ids: np.ndarray
    row_splits: np.ndarray
    targets: Mapping[str, np.ndarray]
    choices: int = 1
    truncated: int = 0
    skipped: int = 0
    extras: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        """Return N."""
        return (len(self.row_splits) - 1) // self.choices


class FinetuningTask(Protocol):
    """A task with the files that were asked for, read and checked.

    Attributes:
        name: such as "mrpc".
        head: of `bert_model.checkpoints.variable_names.TASKS`.
        labels: names of the classes in the order of the logits; None for regression, multiple_choice and span.
        multi_label: whether an example may have several labels: a sigmoid a label in place of the softmax.
        best_metric: the metric that chooses the best checkpoint by default.
        splits: names of what was read: "train", "dev", "test", and for MNLI "dev_mismatched", "test_mismatched".
        eval_splits: those of them that --do_eval scores; the first is scored during training too.
        predict_splits: those of them that --do_predict writes answers for.
    """

    name: str
    head: str
    labels: tuple[str, ...] | None
    multi_label: bool
    best_metric: str
    splits: tuple[str, ...]
    eval_splits: tuple[str, ...]
    predict_splits: tuple[str, ...]

    def fingerprint(self, split: str) -> str:
        """Return the hex digest of the inputs of `rows` but tokenizer and length: examples, labels, options."""

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Encode a split."""

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return the scores of a split that has labels, by their names in eval_results.txt.

        The loss is not among them: the run computes it.
        """

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:
        """Return what the scores of a split that has labels would be for an answer that ignores the text.

        Returns:
            Values by the name of the score followed by one of `trainers.metrics.chance_levels.LEVELS`, such as
            "eval_accuracy_majority_class".
        """

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write the answers for a split into the output directory, each file atomically.

        Returns:
            The files.
        """

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return the report's details of a split with labels, fit for JSON; see `trainers.run_report.task_sections`.

        "warnings" are lines about the scores, which the terminal shows too; those about one class of several come from
        "confusion" (`trainers.metrics.score_warnings`).
        """
