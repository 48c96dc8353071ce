"""Report details of text tasks: confusion matrix, errors, regression points; see `FinetuningTask.details`.

Letters in shapes: N examples, n classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beambert.trainers.finetuning.tasks.text.text_example import TextExample
from beambert.trainers.metrics.score_warnings import label_set_warnings, number_warnings
from beambert.trainers.metrics.task_metrics import confusion, label_f1

MISTAKES = 50
POINTS = 500


def class_details(
    examples: Sequence[TextExample], names: Sequence[str], labels: np.ndarray, probabilities: np.ndarray
) -> dict[str, Any]:
    """Return the confusion matrix and the most confident errors of a classification.

    Args:
        examples: N examples.
        names: names of the n classes.
        labels: int [N].
        probabilities: float [N, n].
    """
    predictions, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    return {
        "confusion": {"labels": list(names), "counts": confusion(labels, predictions, len(names)).tolist()},
        "errors": [
            _mistake(examples[row], names[int(labels[row])], names[int(predictions[row])], confidence[row])
            for row in _largest(confidence, predictions != labels)
        ],
    }


def multi_label_details(
    split: str, examples: Sequence[TextExample], names: Sequence[str], labels: np.ndarray, probabilities: np.ndarray
) -> dict[str, Any]:
    """Return precision and recall of each label, and the most probable errors.

    Args:
        split: name of the split.
        examples: N examples.
        names: names of the n labels.
        labels: bool [N, n].
        probabilities: float [N, n], independent probability of each label.
    """
    predictions = probabilities > 0.5
    # Joint probability of the labels of an example, assuming independence.
    confidence = np.maximum(probabilities, 1 - probabilities).prod(axis=1)
    right, predicted, true = (labels & predictions).sum(0), predictions.sum(0), labels.sum(0)

    def joined(flags: np.ndarray) -> str:
        return ", ".join(name for name, flag in zip(names, flags, strict=True) if flag)

    return {
        "warnings": label_set_warnings(split, labels, predictions),
        "by_type": [
            {"type": name, "precision": float(precision), "recall": float(recall), "f1": float(f1), "count": int(count)}
            for name, precision, recall, f1, count in zip(
                names,
                right / np.maximum(predicted, 1),
                right / np.maximum(true, 1),
                label_f1(labels, predictions),
                true,
                strict=True,
            )
        ],
        "errors": [
            _mistake(examples[row], joined(labels[row]), joined(predictions[row]), confidence[row])
            for row in _largest(confidence, (predictions != labels).any(axis=1))
        ],
    }


def regression_details(
    split: str, examples: Sequence[TextExample], labels: np.ndarray, predictions: np.ndarray
) -> dict[str, Any]:
    """Return points (label, prediction), and the examples with the largest errors.

    Args:
        split: name of the split.
        examples: N examples.
        labels, predictions: float [N].
    """
    points = np.linspace(0, len(labels) - 1, min(len(labels), POINTS)).round().astype(np.int64)
    errors = np.abs(labels - predictions)
    return {
        "warnings": number_warnings(split, labels, predictions),
        "regression": {
            "points": [[round(float(values[row]), 6) for values in (labels, predictions)] for row in points]
        },
        "errors": [
            _mistake(examples[row], np.format_float_positional(labels[row], trim="-"), f"{predictions[row]:.6g}", None)
            for row in _largest(errors, errors > 0)
        ],
    }


def _largest(values: np.ndarray, where: np.ndarray) -> list[int]:
    """Return the selected rows with the largest values, in descending order; ties keep their order."""
    rows = np.flatnonzero(where)
    largest: list[int] = rows[np.argsort(-values[rows], kind="stable")[:MISTAKES]].tolist()
    return largest


def _mistake(example: TextExample, label: str, prediction: str, probability: float | None) -> dict[str, Any]:
    mistake = {
        "location": example.where,
        "text": example.text,
        "text_pair": example.text_pair,
        "label": label,
        "prediction": prediction,
    }
    return mistake if probability is None else {**mistake, "probability": float(probability)}
