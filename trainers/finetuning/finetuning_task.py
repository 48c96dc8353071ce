"""The interface of a fine-tuning task: encode files as rows, and convert logits to metrics and predictions.

Tasks do not depend on TensorFlow, and runs do not depend on file formats. Letters in shapes: N rows, C choices of a
row, T tokens of all rows together, S_i tokens of row i, n labels.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from beambert.bert_model.heads.head import FinetuningHead, Logits
from beambert.common.command_line.flags import in_quotes, real_number
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.metrics.score_warnings import label_warnings

TRAIN, DEV, TEST = "train", "dev", "test"
# Value of --class_weights.
BALANCED = "balanced"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The model's input: concatenated rows of tokens with [CLS] and [SEP], without padding.

    All fields are arrays or numbers, so that rows can be cached in a file.

    Attributes:
        ids: int32 [T], token ids.
        segment_ids: int32 [T].
        row_splits: int64 [N * C + 1]; row i has `ids[row_splits[i]:row_splits[i + 1]]`. The choices of a row are
            consecutive.
        targets: targets of the head's loss, [N, ...]; empty where the file has no labels. Those of a head that
            `labels_positions` are label_ids int32 [T], -1 for positions without a label.
        choices: C; 1 for rows without choices.
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

    def are_pairs(self) -> bool | None:
        """Return True where all rows are pairs of texts, False where none is, and None for a mixture.

        Rows with an empty text, which may be the second one, are ignored.
        """
        if len(self) == len(self.empty):
            return None
        is_pair = np.maximum.reduceat(self.segment_ids, self.row_splits[:-1]) > 0  # [N]
        is_pair = np.delete(is_pair, self.empty)
        return bool(is_pair[0]) if (is_pair == is_pair[0]).all() else None


class FinetuningTask(Protocol):
    """A task with its files, read and validated.

    Attributes:
        name: name of the task, such as "mrpc".
        head: head of the model, which defines the logits.
        labels: names of the classes in the order of the logits; None for a head with a fixed number.
        best_metric: default metric that selects the best checkpoint.
        splits: names of the splits that were read: "train", "dev", "test", and for MNLI "dev_mismatched" and
            "test_mismatched".
        eval_splits: splits that --do_eval evaluates; the first is evaluated during training too.
        predict_splits: splits that --do_predict writes predictions for.
    """

    name: str
    head: FinetuningHead
    labels: tuple[str, ...] | None
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
        count = f"{rows.truncated} of {len(rows)} {split} examples"
        return f"{count} exceed --max_seq_length {max_seq_length} and were truncated"

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
            logits: logits of the rows, as its head defines them.

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
            logits: logits of the rows, as its head defines them.
            output: output directory.

        Returns:
            The paths of the files.
        """

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return the JSON-serializable report details of a split; see `beambert.trainers.run_report.task_sections`.

        Args:
            split: one of `eval_splits`.
            rows: rows of the split.
            logits: logits of the rows, as its head defines them.

        Returns:
            Details by section. "warnings" are lines about the metrics, which are printed too. Warnings about single
            classes are derived from "confusion" (`beambert.trainers.metrics.score_warnings`).
        """


def metric_prefix(split: str) -> str:
    """Return the prefix of the metrics of a split: "eval", "eval_mismatched", "test", ..."""
    return split.replace(DEV, "eval", 1)


def sample_limits(config: FinetuneOptions) -> dict[str, int | None]:
    """Return the maximum number of examples of each split; None for all."""
    return {TRAIN: config.max_train_samples, DEV: config.max_eval_samples, TEST: config.max_predict_samples}


def split_warnings(task: FinetuningTask, split: str, rows: Rows) -> list[str]:
    """Return the warnings about the labels of a split, before the first step."""
    return label_warnings(split, task.labels, rows.targets, is_training=split == TRAIN)


def parse_class_weights(text: str, task: FinetuningTask, rows: Rows) -> tuple[float, ...]:
    """Return the weight of each class of `--class_weights`, in the order of the task's labels.

    Args:
        text: "balanced", for weights N / (n * count) of n classes among N predictions, or LABEL=WEIGHT,..., with weight
            1 for other labels.
        task: a task with labels.
        rows: rows of the training split.

    Raises:
        TrainingError: the task is not single-label classification, or the text names an unknown label or is not valid.
    """
    if task.labels is None or task.head.several_labels:
        raise TrainingError(f"--class_weights requires a task with one label per example, unlike {task.name}")
    if text == BALANCED:
        labels = rows.targets["label_ids"]
        counts = np.bincount(labels[labels >= 0], minlength=len(task.labels))
        # The weight of a class without examples has no effect.
        return tuple((counts.sum() / (len(counts) * np.maximum(counts, 1))).tolist())
    weights = dict.fromkeys(task.labels, 1.0)
    for part in text.split(","):
        label, equals, number = part.rpartition("=")
        weight = real_number(number)
        if not equals or not 0 <= weight < float("inf"):
            raise TrainingError(f"--class_weights: {in_quotes(part)} is not LABEL=WEIGHT, such as {task.labels[0]}=2")
        if label not in weights:
            raise TrainingError(
                f"--class_weights: unknown label {in_quotes(label)}; {task.name} has {', '.join(task.labels)}"
            )
        weights[label] = weight
    return tuple(weights.values())
