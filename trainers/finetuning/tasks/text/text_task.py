"""Text tasks: classification, multi-label classification or regression of texts and pairs of texts.

Letters in shapes: N examples, n labels.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.common.local_files import write_atomic
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.data.text_encoding import encode_texts
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, Logits, Rows
from beambert.trainers.finetuning.tasks import submission
from beambert.trainers.finetuning.tasks.text import text_details
from beambert.trainers.finetuning.tasks.text.text_example import TextExample
from beambert.trainers.metrics import task_metrics
from beambert.trainers.metrics.chance_levels import LEVELS
from beambert.trainers.metrics.task_metrics import sigmoid, softmax

# Labels of regression are trained as float32.
_LARGEST_LABEL = float(np.finfo(np.float32).max)
# Maximum number of labels in a message.
_SHOWN_LABELS = 10


class TextTask:
    """A task over text examples; see `finetuning_task.FinetuningTask`.

    Args:
        name: name of the task, such as "mrpc".
        head: "classification" or "regression".
        labels: names of the classes in the order of the logits; None for regression.
        splits: examples by split: "train", "dev", "test"; names of further development and test splits start with
            "dev_" and "test_". A test split is evaluated too where all examples have labels and a dev split exists.
        metric_names: keys of `task_metrics.CLASS_METRICS`, `MULTI_LABEL_METRICS` or `REGRESSION_METRICS`.
        best_metric: metric that selects the best checkpoint, such as "eval_accuracy".
        multi_label: whether an example may have several labels.
        positive_label: positive class of F1 for two classes; None for the second.
        submission_files: names of the files for the GLUE server, by split.
        skipped: number of rows that the reader skipped, by split.

    Raises:
        TaskDataError: a training or evaluation example has no label, or a label that is not in `labels` or not a finite
            number in float32; the message contains the location of the example.
    """

    def __init__(
        self,
        *,
        name: str,
        head: str,
        labels: Sequence[str] | None,
        splits: Mapping[str, Sequence[TextExample]],
        metric_names: Sequence[str],
        best_metric: str,
        multi_label: bool = False,
        positive_label: str | None = None,
        submission_files: Mapping[str, str] | None = None,
        skipped: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.head = head
        self.labels = None if labels is None else tuple(labels)
        self.multi_label = multi_label
        self.best_metric = best_metric
        self.splits = tuple(splits)
        self.examples = {split: list(examples) for split, examples in splits.items()}
        self._metric_names = tuple(metric_names)
        self._positive_label = positive_label
        self._submission_files = dict(submission_files or {})
        self._skipped = dict(skipped or {})
        for split in splits:
            self._check_labels(split)
        self.predict_splits = tuple(split for split in splits if _is_kind(split, TEST))
        scored = tuple(split for split in splits if _is_kind(split, DEV))
        self.eval_splits = scored + tuple(split for split in self.predict_splits if scored and self._has_labels(split))

    def fingerprint(self, split: str) -> str:
        """Return the hex digest of the texts and labels of a split, the classes and the task type."""
        digest = hashlib.blake2b(digest_size=16)
        options = [self.name, self.head, self.labels, self.multi_label, self._skipped.get(split, 0)]
        digest.update(json.dumps(options).encode())
        for example in self.examples[split]:
            digest.update(json.dumps([example.text, example.text_pair, example.label]).encode())
        return digest.hexdigest()

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Encode a split, one row per example.

        Raises:
            TaskDataError: max_seq_length leaves no room for [CLS] and [SEP].
        """
        examples = self.examples[split]
        encoded = encode_texts(
            [example.text for example in examples],
            [example.text_pair for example in examples],
            tokenizer,
            max_seq_length,
        )
        return Rows(
            ids=encoded.ids,
            segment_ids=encoded.segment_ids,
            row_splits=encoded.row_splits,
            targets=self._targets(examples) if self._has_labels(split) else {},
            truncated=int(encoded.truncated.sum()),
            skipped=self._skipped.get(split, 0),
            empty=np.flatnonzero(encoded.empty),
        )

    def truncation(self, split: str, rows: Rows, max_seq_length: int) -> str:
        """Return the number of truncated examples."""
        count = f"{rows.truncated} of {len(rows)} {split} examples"
        return f"{count} exceed --max_seq_length {max_seq_length} and were truncated"

    def emptiness(self, split: str, rows: Rows) -> str:
        """Return the number of examples with an empty text, and the location of the first."""
        first = self.examples[split][rows.empty[0]].where
        return (
            f"{len(rows.empty)} of {len(rows)} {split} examples have an empty text, the first in {first}; add the text "
            "or remove the rows"
        )

    def texts(self, split: str) -> Iterator[str]:
        """Yield both texts of all examples."""
        for example in self.examples[split]:
            yield example.text
            if example.text_pair is not None:
                yield example.text_pair

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return the metrics of a split: "eval_accuracy", "eval_mismatched_accuracy", "test_accuracy", ..."""
        prefix = split.replace(DEV, "eval", 1)
        return {
            f"{prefix}_{name}": score for name, score in self._scores(rows, self._answers(np.asarray(logits))).items()
        }

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:
        """Return the metrics of constant predictions."""
        if self.labels is None:
            levels = {f"{name}_constant_prediction": 0.0 for name in self._metric_names}
        elif self.multi_label:
            levels = task_metrics.constant_labels_levels(rows.targets["label_values"] > 0)
        else:
            counts = np.bincount(rows.targets["label_ids"], minlength=len(self.labels))
            levels = task_metrics.constant_class_levels(
                counts[::-1] if self._positive_label == self.labels[0] else counts
            )
        prefix = split.replace(DEV, "eval", 1)
        return {
            f"{prefix}_{name}_{level}": levels[f"{name}_{level}"]
            for name in self._metric_names
            for level in LEVELS
            if f"{name}_{level}" in levels
        }

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write test_results.tsv, and the file for the GLUE server or, for other tasks, predictions.tsv.

        File names of further test splits have the suffix of the split, as in test_results_mismatched.tsv.
        """
        answers = self._answers(np.asarray(logits))
        suffix = split.removeprefix(TEST)
        files = {f"{TEST}_results{suffix}.tsv": submission.test_results(answers)}
        if split in self._submission_files:
            indices = [example.index for example in self.examples[split]]
            predictions = answers if self.labels is None else [self.labels[label] for label in answers.argmax(axis=1)]
            files[self._submission_files[split]] = submission.glue_submission(indices, predictions)
        else:
            files[f"predictions{suffix}.tsv"] = self._readable_predictions(split, answers, bool(rows.targets))
        for name, content in files.items():
            write_atomic(output / name, content)
        return [output / name for name in files]

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return confusion matrix, errors and points of a split; see `text_details`."""
        examples, answers = self.examples[split], self._answers(np.asarray(logits))
        if self.labels is None:
            return text_details.regression_details(split, examples, rows.targets["label_values"], answers)
        if self.multi_label:
            labels = rows.targets["label_values"] > 0
            return text_details.multi_label_details(split, examples, self.labels, labels, answers)
        return text_details.class_details(examples, self.labels, rows.targets["label_ids"], answers)

    def _answers(self, logits: np.ndarray) -> np.ndarray:
        """Return probabilities [N, n], or scores [N]."""
        if self.labels is None:
            return logits
        return sigmoid(logits) if self.multi_label else softmax(logits)

    def _scores(self, rows: Rows, answers: np.ndarray) -> dict[str, float]:
        if self.labels is None:
            values = rows.targets["label_values"]
            return {name: task_metrics.REGRESSION_METRICS[name](values, answers) for name in self._metric_names}
        if self.multi_label:
            labels = rows.targets["label_values"] > 0
            return {name: task_metrics.MULTI_LABEL_METRICS[name](labels, answers > 0.5) for name in self._metric_names}
        counts = task_metrics.confusion(rows.targets["label_ids"], answers.argmax(axis=1), len(self.labels))
        if self._positive_label == self.labels[0]:
            counts = counts[::-1, ::-1]  # F1 is that of the second class; other metrics ignore the order.
        return {name: task_metrics.CLASS_METRICS[name](counts) for name in self._metric_names}

    def _targets(self, examples: Sequence[TextExample]) -> dict[str, np.ndarray]:
        labels: list[Any] = [example.label for example in examples]
        if self.labels is None:
            return {"label_values": np.array(labels, np.float32)}
        numbers = {label: number for number, label in enumerate(self.labels)}
        if not self.multi_label:
            return {"label_ids": np.array([numbers[label] for label in labels], np.int32)}
        values = np.zeros((len(labels), len(numbers)), np.float32)
        for row, several in enumerate(labels):
            values[row, [numbers[label] for label in several]] = 1.0
        return {"label_values": values}

    def _readable_predictions(self, split: str, answers: np.ndarray, has_labels: bool) -> bytes:
        examples = self.examples[split]
        has_pairs = any(example.text_pair is not None for example in examples)
        columns = ["text", *["text_pair"] * has_pairs, *["label"] * has_labels, "prediction"]
        if self.labels is None:
            predictions: list[list[Any]] = [[float(score)] for score in answers]
        elif self.multi_label:
            columns += [f"probability of {label}" for label in self.labels]
            predictions = [
                [", ".join(name for name, value in zip(self.labels, row, strict=True) if value > 0.5), *row]
                for row in answers
            ]
        else:
            columns += ["probability"]
            predictions = [[self.labels[row.argmax()], row.max()] for row in answers]
        rows = [
            [
                example.text,
                *[example.text_pair or ""] * has_pairs,
                *([_shown(example.label)] if has_labels else []),
                *prediction,
            ]
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        return submission.readable_predictions(columns, rows)

    def _has_labels(self, split: str) -> bool:
        return all(example.label is not None for example in self.examples[split])

    def _check_labels(self, split: str) -> None:
        """Check the labels of a split. Raise TaskDataError where a label is missing or invalid."""
        needed = not _is_kind(split, TEST)
        known = set(self.labels or ())
        for example in self.examples[split]:
            label = example.label
            if label is None:
                if needed:
                    raise TaskDataError(f"{example.where}: label is missing, which training and evaluation require")
            elif isinstance(label, int | float):
                if not abs(label) <= _LARGEST_LABEL:
                    raise TaskDataError(
                        f"{example.where}: label {label!r} is not a finite number in float32: fix the row, or scale "
                        "all labels"
                    )
            else:
                for one in (label,) if isinstance(label, str) else label:
                    if one not in known:
                        raise TaskDataError(
                            f"{example.where}: label {one!r} is not one of {listed(self.labels or ())}: fix the row, "
                            "or use a model that was not fine-tuned for other labels"
                        )


def listed(labels: Sequence[str]) -> str:
    """Return labels as text for a message, at most the first `_SHOWN_LABELS`."""
    more = f", ... ({len(labels)} in all)" if len(labels) > _SHOWN_LABELS else ""
    return ", ".join(labels[:_SHOWN_LABELS]) + more


def _is_kind(split: str, kind: str) -> bool:
    """Return whether a split is of a kind; "dev_mismatched" is of kind "dev"."""
    return split == kind or split.startswith(f"{kind}_")


def _shown(label: Any) -> str:
    """Return a label as text; numbers are exact, those without a fraction as integers."""
    if isinstance(label, str):
        return label
    return repr(label).removesuffix(".0") if isinstance(label, int | float) else ", ".join(label)
