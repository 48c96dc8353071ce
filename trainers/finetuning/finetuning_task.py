"""The interface of a fine-tuning task: encode files as rows, and convert logits to metrics and predictions.

Tasks do not depend on TensorFlow, and runs do not depend on file formats. Letters in shapes: N rows, C choices of a
row, T tokens of all rows together, S_i tokens of row i, n labels.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.metrics.score_warnings import label_warnings

TRAIN, DEV, TEST = "train", "dev", "test"

# Type by the head of the task (`beambert.bert_model.checkpoints.variable_names.TASKS`):
#   classification        float32 [N, n]
#   regression            float32 [N]
#   multiple_choice       float32 [N, C]
#   span                  N arrays float32 [2, S_i], start and end
#   token_classification  N arrays float32 [S_i, n]
Logits = Sequence[np.ndarray] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Rows:
    """The model's input: concatenated rows of tokens with [CLS] and [SEP], without padding.

    All fields are arrays or numbers, so that rows can be cached in a file.

    Attributes:
        ids: int32 [T], token ids.
        segment_ids: int32 [T].
        row_splits: int64 [N * C + 1]; row i has `ids[row_splits[i]:row_splits[i + 1]]`. The choices of a row are
            consecutive.
        targets: targets of the loss; empty where the file has no labels.
            classification: label_ids int32 [N], or label_values float32 [N, n] for multi-label tasks;
            regression: label_values float32 [N]; multiple_choice: label_ids int32 [N];
            span: start_positions and end_positions int32 [N], positions in the row, 0 for no answer;
            token_classification: label_ids int32 [T], -1 for positions without a label.
        choices: C; 1 except for multiple_choice.
        truncated: number of examples that exceed a length limit, which `FinetuningTask.truncation` describes.
        skipped: number of examples that were skipped because their answer cannot be found.
        empty: int64 [K], indices of the examples with a text without tokens, which `FinetuningTask.emptiness`
            describes.
        extras: arrays for the task itself, to convert rows to text.
    """

    ids: np.ndarray
    segment_ids: np.ndarray
    row_splits: np.ndarray
    targets: Mapping[str, np.ndarray]
    choices: int = 1
    truncated: int = 0
    skipped: int = 0
    empty: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    extras: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        """Return N."""
        return (len(self.row_splits) - 1) // self.choices


class FinetuningTask(Protocol):
    """A task with its files, read and validated.

    Attributes:
        name: name of the task, such as "mrpc".
        head: one of `beambert.bert_model.checkpoints.variable_names.TASKS`.
        labels: names of the classes in the order of the logits; None for regression, multiple_choice and span.
        multi_label: whether an example may have several labels, with a sigmoid per label instead of the softmax.
        best_metric: default metric that selects the best checkpoint.
        splits: names of the splits that were read: "train", "dev", "test", and for MNLI "dev_mismatched" and
            "test_mismatched".
        eval_splits: splits that --do_eval evaluates; the first is evaluated during training too.
        predict_splits: splits that --do_predict writes predictions for.
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
        """Return a digest of the inputs of `rows` except tokenizer and length: examples, labels, options.

        Args:
            split: one of `splits`.

        Returns:
            A hex digest.
        """

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Return the encoded rows of a split.

        Args:
            split: one of `splits`.
            tokenizer: tokenizer of the model.
            max_seq_length: maximum length of a row in tokens, including [CLS] and [SEP].

        Raises:
            TaskDataError: max_seq_length is too short for the task.
        """

    def truncation(self, split: str, rows: Rows, max_seq_length: int) -> str:
        """Return a warning about `rows.truncated` examples: their number, the limit, and the consequence.

        Args:
            split: one of `splits`.
            rows: rows of the split.
            max_seq_length: maximum length of a row in tokens.
        """

    def emptiness(self, split: str, rows: Rows) -> str:
        """Return a warning about `rows.empty` examples: their number, and the location of the first.

        Args:
            split: one of `splits`.
            rows: rows of the split.
        """

    def texts(self, split: str) -> Iterable[str]:
        """Return all texts of a split, as they are tokenized.

        Args:
            split: one of `splits`.
        """

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return the metrics of a split with labels; the run itself computes the loss.

        Args:
            split: one of `eval_splits`.
            rows: rows of the split.
            logits: logits of the rows, see `Logits`.

        Returns:
            Values by their names in eval_results.txt, such as "eval_accuracy".
        """

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:
        """Return the chance levels of the metrics: their values for predictions that ignore the text.

        Args:
            split: one of `eval_splits`.
            rows: rows of the split.

        Returns:
            Values by the name of the metric followed by one of `beambert.trainers.metrics.chance_levels.LEVELS`, such
            as
            "eval_accuracy_majority_class".
        """

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write the predictions of a split to the output directory, each file atomically.

        Args:
            split: one of `predict_splits`.
            rows: rows of the split.
            logits: logits of the rows, see `Logits`.
            output: output directory.

        Returns:
            The paths of the files.
        """

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return the JSON-serializable report details of a split; see `beambert.trainers.run_report.task_sections`.

        Args:
            split: one of `eval_splits`.
            rows: rows of the split.
            logits: logits of the rows, see `Logits`.

        Returns:
            Details by section. "warnings" are lines about the metrics, which are printed too. Warnings about single
            classes are derived from "confusion" (`beambert.trainers.metrics.score_warnings`).
        """


def split_warnings(task: FinetuningTask, split: str, rows: Rows) -> list[str]:
    """Return the warnings about the labels of a split, before the first step."""
    return label_warnings(split, task.labels, rows.targets, is_training=split == TRAIN)
