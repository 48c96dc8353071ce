"""Tasks over texts and pairs of texts: one class, any number of labels, or a number for each.

Letters in shapes: N examples, n labels.
"""

import abc
import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from beambert.bert_model.heads import HEADS
from beambert.bert_model.heads.head import Logits
from beambert.common.formatting import join_first
from beambert.common.local_files import write_atomic
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.data.text_encoding import encode_texts
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, FinetuningTask, Rows, metric_prefix
from beambert.trainers.metrics import task_metrics
from beambert.trainers.metrics.chance_levels import LEVELS
from beambert.trainers.metrics.score_warnings import label_set_warnings, number_warnings

# Maximum number of errors and of points in the report.
MISTAKES = 50
POINTS = 500
# Labels of regression are trained as float32.
_LARGEST_LABEL = float(np.finfo(np.float32).max)
# Maximum number of labels in a message.
_SHOWN_LABELS = 10
# The range of scores of STS-B, the one regression task of GLUE.
_LOWEST_SCORE, _HIGHEST_SCORE = 0.0, 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label.

    Attributes:
        text: the text, as in the file.
        text_pair: the second text; None for a single text.
        label: class name; tuple of label names for multi-label tasks; finite number for regression; None where the file
            has no label.
        where: location for messages and the report, such as "dev.tsv, row 17 (line 18)".
        index: id of the example in a submission; "" where the task's files have no such column.
    """

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None
    where: str = ""
    index: str = ""


class TextTask(FinetuningTask):
    """A task over text examples; see `finetuning_task.FinetuningTask`.

    Args:
        name: name of the task, such as "mrpc".
        labels: names of the classes in the order of the logits; None for regression.
        splits: examples by split: "train", "dev", "test"; names of further development and test splits start with
            "dev_" and "test_". A test split is evaluated too where all examples have labels and a dev split exists.
        metric_names: keys of `metric_functions`; the first one selects the best checkpoint.
        positive_label: positive class of F1 for two classes; None for the second.
        submission_files: names of the files for the GLUE server, by split.
        skipped: number of rows that the reader skipped, by split.

    Raises:
        TaskDataError: a training or evaluation example has no label, or a label that is not in `labels` or not a finite
            number in float32; the message contains the location of the example.
    """

    metric_functions: ClassVar[Mapping[str, Callable[..., float]]]

    def __init__(
        self,
        *,
        name: str,
        labels: Sequence[str] | None,
        splits: Mapping[str, Sequence[TextExample]],
        metric_names: Sequence[str],
        positive_label: str | None = None,
        submission_files: Mapping[str, str] | None = None,
        skipped: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.labels = None if labels is None else tuple(labels)
        self.best_metric = f"eval_{metric_names[0]}"
        self.splits = tuple(splits)
        self.examples = {split: list(examples) for split, examples in splits.items()}
        self._names = tuple(labels or ())
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
        task, multi_label = self.head.recorded.values()
        digest.update(json.dumps([self.name, task, self.labels, multi_label, self._skipped.get(split, 0)]).encode())
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
            targets=self._targets([example.label for example in examples]) if self._has_labels(split) else {},
            truncated=int(encoded.truncated.sum()),
            skipped=self._skipped.get(split, 0),
            empty=np.flatnonzero(encoded.empty),
        )

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
        compared = self._compared(rows, self._answers(logits))
        return {f"{metric_prefix(split)}_{name}": self.metric_functions[name](*compared) for name in self._metric_names}

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:
        """Return the metrics of constant predictions."""
        levels = self._constant_levels(rows)
        names = [f"{name}_{level}" for name in self._metric_names for level in LEVELS]
        return {f"{metric_prefix(split)}_{name}": levels[name] for name in names if name in levels}

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write test_results.tsv, and the file for the GLUE server or, for other tasks, predictions.tsv.

        File names of further test splits have the suffix of the split, as in test_results_mismatched.tsv.
        """
        answers, examples = self._answers(logits), self.examples[split]
        suffix = split.removeprefix(TEST)
        files = {f"{TEST}_results{suffix}.tsv": test_results(answers)}
        if split in self._submission_files:
            predictions = zip(examples, self._submitted(answers), strict=True)
            lines = [f"{example.index or row}\t{answer}\n" for row, (example, answer) in enumerate(predictions)]
            files[self._submission_files[split]] = "".join(["index\tprediction\n", *lines]).encode()
        else:
            files[f"predictions{suffix}.tsv"] = self._readable_predictions(split, answers, bool(rows.targets))
        for name, content in files.items():
            write_atomic(output / name, content)
        return [output / name for name in files]

    @abc.abstractmethod
    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return the report details of a split; see `FinetuningTask.details`."""

    @abc.abstractmethod
    def _targets(self, labels: list[Any]) -> dict[str, np.ndarray]:
        """Return the targets of examples with these labels."""

    @abc.abstractmethod
    def _compared(self, rows: Rows, answers: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the arguments of the metric functions."""

    @abc.abstractmethod
    def _constant_levels(self, rows: Rows) -> dict[str, float]:
        """Return the metrics of constant predictions by metric and level."""

    @abc.abstractmethod
    def _readable(self, answers: np.ndarray) -> tuple[list[str], list[list[Any]]]:
        """Return columns after that of the prediction, and the prediction and these columns for each example."""

    def _submitted(self, answers: np.ndarray) -> list[str]:
        """Return the predictions as the GLUE server reads them."""
        return [prediction for prediction, *_ in self._readable(answers)[1]]

    def _answers(self, logits: Logits) -> np.ndarray:
        """Return probabilities [N, n], or scores [N]."""
        return self.head.probabilities(np.asarray(logits))

    def _readable_predictions(self, split: str, answers: np.ndarray, has_labels: bool) -> bytes:
        examples = self.examples[split]
        has_pairs = any(example.text_pair is not None for example in examples)
        further, predictions = self._readable(answers)
        rows = [
            [
                example.text,
                *[example.text_pair or ""] * has_pairs,
                *([_shown(example.label)] if has_labels else []),
                *prediction,
            ]
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        return readable_table(
            ["text", *["text_pair"] * has_pairs, *["label"] * has_labels, "prediction", *further], rows
        )

    def _mistakes(
        self,
        split: str,
        size: np.ndarray,
        wrong: np.ndarray,
        labels: Sequence[str],
        predictions: Sequence[str],
        probabilities: np.ndarray | None = None,
    ) -> list[dict[str, Any]]:
        """Return the wrong examples, those with the largest size first.

        Args:
            split: name of the split.
            size: float [N], sort key; ties keep their order.
            wrong: bool [N].
            labels, predictions: N texts.
            probabilities: float [N], probabilities of the predictions; None where they have none.
        """
        rows = np.flatnonzero(wrong)
        return [
            {
                "location": self.examples[split][row].where,
                "text": self.examples[split][row].text,
                "text_pair": self.examples[split][row].text_pair,
                "label": labels[row],
                "prediction": predictions[row],
                **({} if probabilities is None else {"probability": float(probabilities[row])}),
            }
            for row in rows[np.argsort(-size[rows], kind="stable")[:MISTAKES]].tolist()
        ]

    def _has_labels(self, split: str) -> bool:
        return all(example.label is not None for example in self.examples[split])

    def _check_labels(self, split: str) -> None:
        """Check the labels of a split. Raise TaskDataError where a label is missing or invalid."""
        needed = not _is_kind(split, TEST)
        known = set(self._names)
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
                            f"{example.where}: label {one!r} is not one of {join_first(self._names)}: fix the row, "
                            "or use a model that was not fine-tuned for other labels"
                        )


class ClassTask(TextTask):
    """A task whose texts have one class each."""

    head = HEADS["classification"]
    metric_functions = task_metrics.CLASS_METRICS

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return the confusion matrix and the most confident errors."""
        labels, probabilities = rows.targets["label_ids"], self._answers(logits)
        predictions, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        counts = task_metrics.confusion(labels, predictions, len(self._names))
        true, predicted = ([self._names[number] for number in numbers] for numbers in (labels, predictions))
        return {
            "confusion": {"labels": list(self._names), "counts": counts.tolist()},
            "errors": self._mistakes(split, confidence, predictions != labels, true, predicted, confidence),
        }

    def _targets(self, labels: list[Any]) -> dict[str, np.ndarray]:
        numbers = {label: number for number, label in enumerate(self._names)}
        return {"label_ids": np.array([numbers[label] for label in labels], np.int32)}

    def _compared(self, rows: Rows, answers: np.ndarray) -> tuple[np.ndarray, ...]:
        counts = task_metrics.confusion(rows.targets["label_ids"], answers.argmax(axis=1), len(self._names))
        # F1 is that of the second class; other metrics ignore the order.
        return (counts[::-1, ::-1] if self._positive_label == self._names[0] else counts,)

    def _constant_levels(self, rows: Rows) -> dict[str, float]:
        counts = np.bincount(rows.targets["label_ids"], minlength=len(self._names))
        return task_metrics.constant_class_levels(counts[::-1] if self._positive_label == self._names[0] else counts)

    def _readable(self, answers: np.ndarray) -> tuple[list[str], list[list[Any]]]:
        return ["probability"], [[self._names[row.argmax()], row.max()] for row in answers]


class LabelSetTask(TextTask):
    """A task whose texts have any number of labels."""

    head = HEADS["multi_label"]
    metric_functions = task_metrics.MULTI_LABEL_METRICS

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return precision and recall of each label, and the most probable errors."""
        labels, probabilities = rows.targets["label_values"] > 0, self._answers(logits)
        predictions = probabilities > 0.5
        # Joint probability of the labels of an example, assuming independence.
        confidence = np.maximum(probabilities, 1 - probabilities).prod(axis=1)
        right, predicted, true = (labels & predictions).sum(0), predictions.sum(0), labels.sum(0)
        columns = zip(
            self._names,
            right / np.maximum(predicted, 1),
            right / np.maximum(true, 1),
            task_metrics.label_f1(labels, predictions),
            true,
            strict=True,
        )
        wrong = (predictions != labels).any(axis=1)
        true_names, names = ([self._joined(row) for row in values] for values in (labels, predictions))
        return {
            "warnings": label_set_warnings(split, labels, predictions),
            "by_type": [
                {
                    "type": name,
                    "precision": float(precision),
                    "recall": float(recall),
                    "f1": float(f1),
                    "count": int(count),
                }
                for name, precision, recall, f1, count in columns
            ],
            "errors": self._mistakes(split, confidence, wrong, true_names, names, confidence),
        }

    def _targets(self, labels: list[Any]) -> dict[str, np.ndarray]:
        numbers = {label: number for number, label in enumerate(self._names)}
        values = np.zeros((len(labels), len(numbers)), np.float32)
        for row, several in enumerate(labels):
            values[row, [numbers[label] for label in several]] = 1.0
        return {"label_values": values}

    def _compared(self, rows: Rows, answers: np.ndarray) -> tuple[np.ndarray, ...]:
        return rows.targets["label_values"] > 0, answers > 0.5

    def _constant_levels(self, rows: Rows) -> dict[str, float]:
        return task_metrics.constant_labels_levels(rows.targets["label_values"] > 0)

    def _readable(self, answers: np.ndarray) -> tuple[list[str], list[list[Any]]]:
        columns = [f"probability of {label}" for label in self._names]
        return columns, [[self._joined(row > 0.5), *row] for row in answers]

    def _joined(self, flags: np.ndarray) -> str:
        return ", ".join(name for name, flag in zip(self._names, flags, strict=True) if flag)


class NumberTask(TextTask):
    """A task whose texts have a number each."""

    head = HEADS["regression"]
    metric_functions = task_metrics.REGRESSION_METRICS

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return points (label, prediction), and the examples with the largest errors."""
        labels, predictions = rows.targets["label_values"], self._answers(logits)
        points = np.linspace(0, len(labels) - 1, min(len(labels), POINTS)).round().astype(np.int64)
        errors = np.abs(labels - predictions)
        exact = [np.format_float_positional(label, trim="-") for label in labels]
        return {
            "warnings": number_warnings(split, labels, predictions),
            "regression": {
                "points": [[round(float(values[row]), 6) for values in (labels, predictions)] for row in points]
            },
            "errors": self._mistakes(split, errors, errors > 0, exact, [f"{value:.6g}" for value in predictions]),
        }

    def _targets(self, labels: list[Any]) -> dict[str, np.ndarray]:
        return {"label_values": np.array(labels, np.float32)}

    def _compared(self, rows: Rows, answers: np.ndarray) -> tuple[np.ndarray, ...]:
        return rows.targets["label_values"], answers

    def _constant_levels(self, rows: Rows) -> dict[str, float]:  # noqa: ARG002
        return {f"{name}_constant_prediction": 0.0 for name in self._metric_names}

    def _submitted(self, answers: np.ndarray) -> list[str]:
        return [str(score) for score in answers.astype(np.float32).clip(_LOWEST_SCORE, _HIGHEST_SCORE)]

    def _readable(self, answers: np.ndarray) -> tuple[list[str], list[list[Any]]]:
        return [], [[float(score)] for score in answers]


def test_results(values: np.ndarray) -> bytes:
    """Return `test_results.tsv` as run_classifier.py writes it: one line per example, without a header.

    Args:
        values: probabilities [N, n], tab-separated in the file, or scores [N].
    """
    rows = values.reshape(len(values), -1).astype(np.float32)
    return "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()


def readable_table(columns: Sequence[str], rows: Iterable[Sequence[str | float]]) -> bytes:
    """Return a tab-separated table with a header.

    Runs of white space in a text become one space, so that no cell contains a tab or a newline. A cell with a quotation
    mark is quoted as in CSV. Numbers have six significant digits.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter="\t", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [" ".join(cell.split()) if isinstance(cell, str) else f"{cell:.6g}" for cell in row] for row in rows
    )
    return lines.getvalue().encode("utf-8", "replace")


def _is_kind(split: str, kind: str) -> bool:
    """Return whether a split is of a kind; "dev_mismatched" is of kind "dev"."""
    return split == kind or split.startswith(f"{kind}_")


def _shown(label: Any) -> str:
    """Return a label as text; numbers are exact, those without a fraction as integers."""
    if isinstance(label, str):
        return label
    return repr(label).removesuffix(".0") if isinstance(label, int | float) else ", ".join(label)
