"""Warnings about the scores of a fine-tuned model: labels that test nothing, and answers no better than chance.

Each function returns a line for each finding, none for a model that has learned. Letters in shapes: N examples,
n classes, Q questions.
"""

import math
from collections.abc import Sequence

import numpy as np

from trainers.metrics.chance_levels import LEAST_GAIN, is_near, standard_error
from trainers.metrics.task_metrics import best_constant_micro_f1, micro_f1

_REMEDY = (
    "On small sets that happens with some seeds; train with another --seed, for more epochs, or with a lower "
    "--learning_rate."
)
_LITTLE = (
    "The model may have learned little: train for more epochs, with another --seed or --learning_rate; if the examples "
    "are few, evaluate on more."
)
# Of fewer examples, a coincidence is likely.
_ENOUGH = 20
# Standard deviations above the mean under permutation, and agreement beyond chance, below which answers are at chance.
_LEAST_Z, _LEAST_AGREEMENT = 2.0, 0.05
# Predictions of a number that spread less than this share of the labels' spread are one number.
_LEAST_SPREAD = 1e-3
# An F1 of entities below this counts as nothing found where the accuracy of the words is at chance.
_LEAST_F1 = 0.1


def class_warnings(split: str, labels: Sequence[str], counts: np.ndarray) -> list[str]:
    """Return the warnings about one class of several.

    Args:
        split: name of the examples.
        labels: names of the classes.
        counts: int [n, n], true classes by row, predicted ones by column.
    """
    total, true, predicted = int(counts.sum()), counts.sum(1), counts.sum(0)
    if not total:
        return []
    if (true > 0).sum() == 1:
        return [_one_label(split, labels[int(true.argmax())], total)]
    accuracy, majority = np.trace(counts) / total, true.max() / total
    if (predicted > 0).sum() == 1:
        return [
            f"Every example of {split} is given the label {labels[int(predicted.argmax())]} (accuracy {accuracy:.3f}, "
            f"majority class {majority:.3f}): the model has learned nothing but which label is frequent. {_REMEDY}"
        ]
    if is_near(accuracy, majority, total) and _agree_at_chance(counts):
        return [_at_chance(split, accuracy, "majority class", majority, total)]
    return []


def choice_warnings(split: str, labels: np.ndarray, predictions: np.ndarray, choices: int) -> list[str]:
    """Return the warnings about multiple choice.

    Args:
        split: name of the examples.
        labels, predictions: int [N], places among the choices.
        choices: of an example.
    """
    total, chance = len(labels), 1 / choices
    accuracy = float((labels == predictions).mean()) if total else 0.0
    if total and len(set(labels.tolist())) == 1 and total >= _ENOUGH:
        # The order of the choices says nothing to the model; a broken label column looks like this.
        return [
            f"In every example of {split} the right choice is number {labels[0]}: check the column of labels, and "
            "shuffle the choices."
        ]
    if total and is_near(accuracy, chance, total):
        return [_at_chance(split, accuracy, "random choice", chance, total)]
    return []


def number_warnings(split: str, labels: np.ndarray, predictions: np.ndarray) -> list[str]:
    """Return the warnings about regression.

    Args:
        split: name of the examples.
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
            f"Every example of {split} is given about the same number, {predictions.mean():.4g}: the model has learned "
            f"nothing but the mean of the labels. {_REMEDY}"
        ]
    correlation = float(np.corrcoef(labels, predictions)[0, 1])
    error = 1 / math.sqrt(total - 1)
    if correlation < _LEAST_Z * error:
        return [
            f"The correlation of predictions and labels on {split} is {correlation:.3f}, not clearly above 0 (standard "
            f"error {error:.3f} of {total:,} examples). {_LITTLE}"
        ]
    return []


def label_set_warnings(split: str, labels: np.ndarray, predictions: np.ndarray) -> list[str]:
    """Return the warnings about any number of labels.

    Args:
        split: name of the examples.
        labels, predictions: bool [N, n].
    """
    total = len(labels)
    if not total:
        return []
    if (labels == labels[0]).all():
        return [
            f"All {total:,} examples of {split} have the same labels: the scores do not show whether the model "
            "distinguishes labels. Evaluate on examples of several."
        ]
    if not predictions.any():
        return [f"No example of {split} is given a label: no probability is above 0.5. {_REMEDY}"]
    if (predictions == predictions[0]).all():
        return [
            f"Every example of {split} is given the same labels: the model has learned nothing but which are frequent. "
            f"{_REMEDY}"
        ]
    score, level = micro_f1(labels, predictions), best_constant_micro_f1(labels)
    true, predicted = labels.sum(0).astype(np.float64), predictions.sum(0).astype(np.float64)
    excess = (labels & predictions).sum() - (true * predicted).sum() / total
    variance = (true * predicted * (total - true) * (total - predicted)).sum() / (total**2 * max(total - 1, 1))
    if score <= level + LEAST_GAIN and excess <= _LEAST_Z * math.sqrt(variance):
        return [
            f"The F1 over all labels of {split} is {score:.3f}, not above that of a constant prediction ({level:.3f}, "
            f"{total:,} examples). {_LITTLE}"
        ]
    return []


def entity_warnings(
    split: str, *, true: int, predicted: int, f1: float, accuracy: float, majority: float, words: int
) -> list[str]:
    """Return the warnings about entities.

    Args:
        split: name of the sentences.
        true, predicted: numbers of entities.
        f1: of the entities.
        accuracy: share of the words with the right tag.
        majority: share of the most frequent tag.
        words: of the split.
    """
    if not true:
        return [
            f"{split} has no entity in {words:,} words: F1 is 0 whatever the model finds. Evaluate on sentences with "
            "entities."
        ]
    beside = f"(accuracy of the words {accuracy:.3f}, majority class {majority:.3f})"
    if not predicted:
        return [f"No word of {split} is in an entity, every tag is O {beside}. {_REMEDY}"]
    if f1 < _LEAST_F1 and is_near(accuracy, majority, words, 0.0):
        return [f"The F1 of the entities of {split} is {f1:.3f} {beside}. {_LITTLE}"]
    return []


def answer_warnings(split: str, has_answer: np.ndarray, exact: np.ndarray, texts: Sequence[str]) -> list[str]:
    """Return the warnings about answers in texts.

    Args:
        split: name of the questions.
        has_answer: bool [Q].
        exact: float [Q], 1 for an answer that is right, else 0.
        texts: of the answers, "" for no answer.
    """
    total = len(texts)
    if not total:
        return []
    level, score = 1 - float(has_answer.mean()), float(np.mean(exact))
    beside = f"(exact match {100 * score:.1f}, no answer {100 * level:.1f})"
    if not has_answer.any():
        return [
            f"No question of {split} has an answer: the scores do not show whether the model finds any. Evaluate on "
            "questions with answers."
        ]
    if not any(texts):
        return [f"No question of {split} is given an answer {beside}. {_REMEDY}"]
    if total > 1 and len(set(texts)) == 1:
        return [f"Every question of {split} is given the same answer {beside}. {_REMEDY}"]
    if level and is_near(score, level, total):
        return [
            f"The exact match on {split} is {100 * score:.1f}, not clearly above answering no question "
            f"({100 * level:.1f}, standard error {100 * standard_error(level, total):.1f} of {total:,} questions). "
            f"{_LITTLE}"
        ]
    if not level and not exact.any() and total >= _ENOUGH:
        return [f"None of the {total:,} answers of {split} is right. {_LITTLE}"]
    return []


def _one_label(split: str, label: str, total: int) -> str:
    return (
        f"Every example of {split} has the label {label} ({total:,} examples): the scores do not show whether the "
        "model distinguishes labels. Evaluate on examples of several labels."
    )


def _at_chance(split: str, accuracy: float, level: str, value: float, total: int) -> str:
    return (
        f"The accuracy on {split} is {accuracy:.3f}, not clearly above chance ({level} {value:.3f}, standard error "
        f"{standard_error(value, total):.3f} of {total:,} examples). {_LITTLE}"
    )


def _agree_at_chance(counts: np.ndarray) -> bool:
    """Return whether predictions agree with the labels as they would if they were shuffled.

    The number of right answers under all permutations of the predictions has a known mean and variance; agreement
    beyond chance is Cohen's kappa.

    Args:
        counts: int [n, n], true classes by row, predicted ones by column.
    """
    counts = counts.astype(np.float64)
    total, true, predicted = counts.sum(), counts.sum(1), counts.sum(0)
    expected = true @ predicted / total
    centered = np.eye(len(counts)) - predicted[:, None] / total - true[None, :] / total + expected / total
    variance = float(true @ centered**2 @ predicted) / max(total - 1, 1)
    excess = float(np.trace(counts)) - expected
    return excess < _LEAST_Z * math.sqrt(variance) or excess < _LEAST_AGREEMENT * (total - expected)
