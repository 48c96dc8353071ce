"""Return warnings about the metrics of a fine-tuned model: uninformative labels, and predictions at chance level.

Each function returns one line per warning. Letters in shapes: N examples, n classes, Q questions.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from beambert.trainers.metrics.chance_levels import LEAST_GAIN, is_near, standard_error
from beambert.trainers.metrics.task_metrics import best_constant_micro_f1, micro_f1

_REMEDY = (
    "Small training sets are unstable: train with another --seed, for more epochs, or with a lower --learning_rate."
)
_LITTLE = "Train for more epochs, or with another --seed or --learning_rate; with few examples, evaluate on more."
# With fewer examples, a coincidence is likely.
_ENOUGH = 20
# Standard deviations above the mean under permutation, and Cohen's kappa, below which predictions are at chance.
_LEAST_Z, _LEAST_AGREEMENT = 2.0, 0.05
# Predictions with a standard deviation below this fraction of the labels' are constant.
_LEAST_SPREAD = 1e-3
# An entity F1 below this is at chance level if the word accuracy is.
_LEAST_F1 = 0.1


def without_advice(warning: str) -> str:
    """Return a warning without the advice on training, which does not help where the input is wrong."""
    return warning.removesuffix(_REMEDY).removesuffix(_LITTLE).rstrip()


def class_warnings(split: str, labels: Sequence[str], counts: np.ndarray) -> list[str]:
    """Return the warnings about a classification task.

    Args:
        split: name of the split.
        labels: names of the classes.
        counts: int [n, n], confusion matrix with true classes as rows.
    """
    total, true, predicted = int(counts.sum()), counts.sum(1), counts.sum(0)
    if not total:
        return []
    if (true > 0).sum() == 1:
        return [_one_label(split, labels[int(true.argmax())], total)]
    accuracy, majority = np.trace(counts) / total, true.max() / total
    if (predicted > 0).sum() == 1:
        return [
            f"The model predicts the label {labels[int(predicted.argmax())]} for every example of {split} (accuracy "
            f"{accuracy:.3f}, majority class {majority:.3f}). {_REMEDY}"
        ]
    if is_near(accuracy, majority, total) and _agree_at_chance(counts):
        return [_at_chance(split, accuracy, "majority class", majority, total)]
    return []


def label_warnings(
    split: str, names: Sequence[str] | None, targets: Mapping[str, np.ndarray], is_training: bool
) -> list[str]:
    """Return a warning if all labels of a split are the same, before the first step.

    Args:
        split: name of the split.
        names: names of the classes; None for numbers and choices.
        targets: label_ids int32 [N] or [T], -1 for positions without a label, or label_values float32 [N] or [N, n].
        is_training: whether the model is trained on the split.
    """
    labels = targets.get("label_ids", targets.get("label_values"))
    if labels is None:
        return []
    labels = labels[labels >= 0] if "label_ids" in targets else labels
    if len(labels) < _ENOUGH or not (labels == labels[0]).all():
        return []
    label = (
        f"the label {names[int(labels[0])] if names else f'{labels[0]:g}'}" if labels.ndim == 1 else "the same labels"
    )
    remedy = (
        "so the model learns nothing else. Train on examples with different labels."
        if is_training
        else "so the metrics are not informative. Evaluate on examples with different labels."
    )
    return [f"Every example of {split} has {label} ({len(labels):,} labels), {remedy}"]


def choice_warnings(split: str, labels: np.ndarray, predictions: np.ndarray, choices: int) -> list[str]:
    """Return the warnings about multiple choice.

    Args:
        split: name of the split.
        labels, predictions: int [N], indices of choices.
        choices: number of choices per example.
    """
    total, chance = len(labels), 1 / choices
    accuracy = float((labels == predictions).mean()) if total else 0.0
    if total and len(set(labels.tolist())) == 1 and total >= _ENOUGH:
        # The order of the choices is no information; a broken label column looks like this.
        return [
            f"The correct choice is number {labels[0]} in every example of {split}: check the label column, and "
            "shuffle "
            "the choices."
        ]
    if total and is_near(accuracy, chance, total):
        return [_at_chance(split, accuracy, "random choice", chance, total)]
    return []


def number_warnings(split: str, labels: np.ndarray, predictions: np.ndarray) -> list[str]:
    """Return the warnings about a regression task.

    Args:
        split: name of the split.
        labels, predictions: float [N].
    """
    total = len(labels)
    if not total:
        return []
    labels, predictions = labels.astype(np.float64), predictions.astype(np.float64)
    if (labels == labels[0]).all():
        return [_one_label(split, f"{labels[0]:g}", total)]
    if not predictions.std() > _LEAST_SPREAD * labels.std():
        return [
            f"The model predicts nearly the same value for every example of {split}, {predictions.mean():.4g}. "
            f"{_REMEDY}"
        ]
    correlation = float(np.corrcoef(labels, predictions)[0, 1])
    error = 1 / math.sqrt(total - 1)
    if correlation < _LEAST_Z * error:
        return [
            f"The correlation of predictions and labels on {split} is {correlation:.3f}, not significantly above 0 "
            f"(standard error {error:.3f}, {total:,} examples). {_LITTLE}"
        ]
    return []


def label_set_warnings(split: str, labels: np.ndarray, predictions: np.ndarray) -> list[str]:
    """Return the warnings about a multi-label task.

    Args:
        split: name of the split.
        labels, predictions: bool [N, n].
    """
    total = len(labels)
    if not total:
        return []
    if (labels == labels[0]).all():
        return [
            f"All {total:,} examples of {split} have the same labels, so the metrics are not informative. Evaluate on "
            "examples with different labels."
        ]
    if not predictions.any():
        return [f"The model predicts no label for any example of {split}: all probabilities are at most 0.5. {_REMEDY}"]
    if (predictions == predictions[0]).all():
        return [f"The model predicts the same labels for every example of {split}. {_REMEDY}"]
    score, level = micro_f1(labels, predictions), best_constant_micro_f1(labels)
    true, predicted = labels.sum(0).astype(np.float64), predictions.sum(0).astype(np.float64)
    excess = (labels & predictions).sum() - (true * predicted).sum() / total
    variance = (true * predicted * (total - true) * (total - predicted)).sum() / (total**2 * max(total - 1, 1))
    if score <= level + LEAST_GAIN and excess <= _LEAST_Z * math.sqrt(variance):
        return [
            f"The micro F1 on {split} is {score:.3f}, not above that of a constant prediction ({level:.3f}, {total:,} "
            f"examples). {_LITTLE}"
        ]
    return []


def entity_warnings(
    split: str, *, true: int, predicted: int, f1: float, accuracy: float, majority: float, words: int
) -> list[str]:
    """Return the warnings about a named-entity task.

    Args:
        split: name of the split.
        true, predicted: numbers of true and predicted entities.
        f1: F1 of the entities.
        accuracy: fraction of words with the correct tag.
        majority: fraction of words with the most frequent tag.
        words: number of words in the split.
    """
    if not true:
        return [f"{split} has no entities in {words:,} words, so F1 is always 0. Evaluate on sentences with entities."]
    levels = f"(word accuracy {accuracy:.3f}, majority class {majority:.3f})"
    if not predicted:
        return [f"The model predicts no entity on {split} {levels}. {_REMEDY}"]
    if f1 < _LEAST_F1 and is_near(accuracy, majority, words, 0.0):
        return [f"The entity F1 on {split} is {f1:.3f} {levels}. {_LITTLE}"]
    return []


def answer_warnings(split: str, has_answer: np.ndarray, exact: np.ndarray, texts: Sequence[str]) -> list[str]:
    """Return the warnings about a question-answering task.

    Args:
        split: name of the split.
        has_answer: bool [Q], whether each question is answerable.
        exact: float [Q], 1 for an exact match, else 0.
        texts: predicted answers; "" for no answer.
    """
    total = len(texts)
    if not total:
        return []
    level, score = 1 - float(has_answer.mean()), float(np.mean(exact))
    levels = f"(exact match {100 * score:.1f}, no answer {100 * level:.1f})"
    if not has_answer.any():
        return [
            f"{split} has no answerable question, so the metrics are not informative. Evaluate on answerable questions."
        ]
    if not any(texts):
        return [f"The model predicts no answer for every question of {split} {levels}. {_REMEDY}"]
    if total > 1 and len(set(texts)) == 1:
        return [f"The model predicts the same answer for every question of {split} {levels}. {_REMEDY}"]
    if level and is_near(score, level, total):
        return [
            f"The exact match on {split} is {100 * score:.1f}, not significantly above predicting no answer "
            f"({100 * level:.1f}, standard error {100 * standard_error(level, total):.1f}, {total:,} questions). "
            f"{_LITTLE}"
        ]
    if not level and not exact.any() and total >= _ENOUGH:
        return [f"None of the {total:,} predicted answers on {split} is correct. {_LITTLE}"]
    return []


def _one_label(split: str, label: str, total: int) -> str:
    return (
        f"Every example of {split} has the label {label} ({total:,} examples), so the metrics are not informative. "
        "Evaluate on examples with different labels."
    )


def _at_chance(split: str, accuracy: float, level: str, value: float, total: int) -> str:
    return (
        f"The accuracy on {split} is {accuracy:.3f}, not significantly above the chance level ({level} {value:.3f}, "
        f"standard error {standard_error(value, total):.3f}, {total:,} examples). {_LITTLE}"
    )


def _agree_at_chance(counts: np.ndarray) -> bool:
    """Return whether predictions agree with the labels no better than shuffled predictions.

    The number of correct predictions over all permutations has a known mean and variance; agreement beyond chance is
    Cohen's kappa.

    Args:
        counts: int [n, n], confusion matrix with true classes as rows.
    """
    counts = counts.astype(np.float64)
    total, true, predicted = counts.sum(), counts.sum(1), counts.sum(0)
    expected = true @ predicted / total
    centered = np.eye(len(counts)) - predicted[:, None] / total - true[None, :] / total + expected / total
    variance = float(true @ centered**2 @ predicted) / max(total - 1, 1)
    excess = float(np.trace(counts)) - expected
    return excess < _LEAST_Z * math.sqrt(variance) or excess < _LEAST_AGREEMENT * (total - expected)
