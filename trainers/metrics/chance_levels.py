"""Compute chance levels, the scores of predictions that ignore the input, for the metrics of an evaluation.

A chance level is a metric named after its score: `eval_accuracy_majority_class` for `eval_accuracy`.
This file imports neither Keras nor TensorFlow.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

# Name suffix and label of each chance level.
LEVELS = {
    "majority_class": "majority class",
    "most_frequent_token": "most frequent token",
    "constant_prediction": "constant prediction",
    "random_choice": "random choice",
    "no_answer": "no answer",
    "no_entity": "no entity",
}
# Metrics with the number of predictions and pairs of a pretraining evaluation.
MASKED_LM_COUNT, NEXT_SENTENCE_COUNT = "masked_lm_predictions", "next_sentence_pairs"
PRETRAINING_COUNTS = (MASKED_LM_COUNT, NEXT_SENTENCE_COUNT)
# A score is above chance if it exceeds the level by two standard errors and by LEAST_GAIN.
_STANDARD_ERRORS = 2.0
LEAST_GAIN = 0.01
# The most frequent token is rare, so its minimum gain is relative to its frequency.
_LEAST_TOKEN_GAIN = 0.1


def is_level(name: str) -> bool:
    """Return whether a metric is a chance level, by its name."""
    return any(name.endswith(f"_{ending}") for ending in LEVELS)


def level_of(name: str, metrics: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the label and the value of the chance level of a score; None if the metrics have none."""
    for ending, label in LEVELS.items():
        value = metrics.get(f"{name}_{ending}")
        if isinstance(value, int | float):
            return label, value
    return None


def with_level(text: str, name: str, metrics: Mapping[str, float], form: str = ".3f") -> str:
    """Return a score followed by its chance level, such as "accuracy 0.683 (majority class 0.684)".

    Args:
        text: the formatted score.
        name: name of the score.
        metrics: metrics of the evaluation.
        form: format of the chance level.
    """
    level = level_of(name, metrics)
    return text if level is None else f"{text} ({level[0]} {level[1]:{form}})"


def standard_error(level: float, count: float) -> float:
    """Return the standard error of a fraction with expectation `level` over `count` independent predictions."""
    return math.sqrt(level * (1 - level) / count) if count > 0 else math.inf


def is_near(score: float, level: float, count: float, least_gain: float = LEAST_GAIN) -> bool:
    """Return whether a score is not significantly above its chance level.

    Args:
        score: fraction of correct predictions, from 0 to 1.
        level: chance level of the score.
        count: number of predictions.
        least_gain: minimum difference from the chance level.
    """
    return score < level + max(_STANDARD_ERRORS * standard_error(level, count), least_gain)


def pretraining_levels(batches: Iterable[Mapping[str, np.ndarray]], next_sentence: bool) -> dict[str, float]:
    """Return the chance levels of a pretraining evaluation, and the numbers of predictions and pairs.

    Args:
        batches: batches of the evaluation, with masked_lm_ids and masked_lm_weights [B, P], next_sentence_labels [B] or
            [B, K], for rows of several instances next_sentence_weights [B, K], and for padded batches example_weights
            [B].
        next_sentence: whether next-sentence prediction is evaluated.

    Returns:
        The frequency of the most frequent original token among the predictions, the fraction of the majority label
        among the pairs, and the numbers of both; without those that do not apply.
    """
    tokens, labels = np.zeros(0), np.zeros(2)
    for features in batches:
        weights = features["masked_lm_weights"]
        rows = features.get("example_weights", np.ones(len(weights), np.float32))
        tokens = _added(tokens, features["masked_lm_ids"], weights * rows[:, None])
        if next_sentence and "next_sentence_labels" in features:
            pairs = features["next_sentence_labels"].reshape(len(rows), -1)  # [B, K]
            counted = features.get("next_sentence_weights", np.ones(pairs.shape, np.float32)) * rows[:, None]
            labels = _added(labels, pairs, counted)
    levels: dict[str, float] = {}
    for name, level, count, counts in (
        ("masked_lm_accuracy", "most_frequent_token", MASKED_LM_COUNT, tokens),
        ("next_sentence_accuracy", "majority_class", NEXT_SENTENCE_COUNT, labels),
    ):
        if counts.sum() > 0:
            levels |= {f"{name}_{level}": float(counts.max() / counts.sum()), count: float(counts.sum())}
    return levels


def _added(counts: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    more = np.bincount(ids.ravel(), weights.ravel().astype(np.float64), minlength=len(counts))
    more[: len(counts)] += counts
    return more


def pretraining_warnings(metrics: Mapping[str, float]) -> list[str]:
    """Return warnings about the scores of a pretraining evaluation, one line each.

    Args:
        metrics: metrics of the evaluation, with `pretraining_levels`.
    """
    warnings = []
    for name, task, count_name, kind, least_share in (
        ("masked_lm_accuracy", "masked-LM", MASKED_LM_COUNT, "predictions", _LEAST_TOKEN_GAIN),
        ("next_sentence_accuracy", "next-sentence", NEXT_SENTENCE_COUNT, "pairs", 0.0),
    ):
        score, level, count = metrics.get(name), level_of(name, metrics), metrics.get(count_name)
        if not isinstance(score, int | float) or level is None or not isinstance(count, int | float):
            continue
        label, value = level
        if is_near(score, value, count, least_share * value if least_share else LEAST_GAIN):
            warnings.append(
                f"The {task} accuracy of {score:.3f} is not significantly above the {label} baseline ({value:.3f}, "
                f"standard error {standard_error(value, count):.3f}, {count:,.0f} {kind}). Train for more steps, with "
                "another --learning_rate, or on more text."
            )
    return warnings
