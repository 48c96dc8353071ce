"""Chance levels: what an answer that ignores the input would score, kept beside each score of an evaluation.

A chance level is a metric of its own, named after its score: `eval_accuracy_majority_class` beside `eval_accuracy`.
This file imports neither Keras nor TensorFlow.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

# How the name of a chance level ends, and what the level is called.
LEVELS = {
    "majority_class": "majority class",
    "most_frequent_token": "most frequent token",
    "constant_prediction": "constant prediction",
    "random_choice": "random choice",
    "no_answer": "no answer",
    "no_entity": "no entity",
}
# Metrics that count what a pretraining score was measured on.
MASKED_LM_COUNT, NEXT_SENTENCE_COUNT = "masked_lm_predictions", "next_sentence_pairs"
PRETRAINING_COUNTS = (MASKED_LM_COUNT, NEXT_SENTENCE_COUNT)
# A score is above chance by two standard errors of the level at least, and by more than this.
_STANDARD_ERRORS = 2.0
LEAST_GAIN = 0.01
# The most frequent of many tokens is rare: the least gain is a share of its frequency.
_LEAST_TOKEN_GAIN = 0.1


def is_level(name: str) -> bool:
    """Return whether a metric is a chance level by its name."""
    return any(name.endswith(f"_{ending}") for ending in LEVELS)


def level_of(name: str, metrics: Mapping[str, float]) -> tuple[str, float] | None:
    """Return what the chance level of a score is called, and its value; None if the metrics have none of it."""
    for ending, words in LEVELS.items():
        value = metrics.get(f"{name}_{ending}")
        if isinstance(value, int | float):
            return words, value
    return None


def with_level(text: str, name: str, metrics: Mapping[str, float], form: str = ".3f") -> str:
    """Return a score followed by its chance level, such as "accuracy 0.683 (majority class 0.684)".

    Args:
        text: the score in words.
        name: of the score.
        metrics: of the evaluation.
        form: format of the level's value.
    """
    level = level_of(name, metrics)
    return text if level is None else f"{text} ({level[0]} {level[1]:{form}})"


def standard_error(level: float, count: float) -> float:
    """Return the standard error of a share of `count` independent answers that is `level` in expectation."""
    return math.sqrt(level * (1 - level) / count) if count > 0 else math.inf


def is_near(score: float, level: float, count: float, least_gain: float = LEAST_GAIN) -> bool:
    """Return whether a share is below its chance level, or not significantly above it.

    Args:
        score: share of the answers that are right, from 0 to 1.
        level: its chance level.
        count: number of answers.
        least_gain: what is no gain even if it is significant.
    """
    return score < level + max(_STANDARD_ERRORS * standard_error(level, count), least_gain)


def pretraining_levels(batches: Iterable[Mapping[str, np.ndarray]], next_sentence: bool) -> dict[str, float]:
    """Return the chance levels of a pretraining evaluation, and how much each is measured on.

    Args:
        batches: of the evaluation: masked_lm_ids and masked_lm_weights [B, P], next_sentence_labels [B] or [B, K] and,
            for rows of several instances, next_sentence_weights [B, K]; example_weights [B] if rows fill batches up.
        next_sentence: whether the next-sentence task takes part.

    Returns:
        The frequency of the most frequent original token among the predictions, the share of the majority label among
        the pairs, and the numbers of both; nothing of what is not there.
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
    """Return warnings about the scores of a pretraining evaluation, a line each.

    Args:
        metrics: of the evaluation, with `pretraining_levels`.
    """
    warnings = []
    for name, task, count_name, kind, least_share in (
        ("masked_lm_accuracy", "masked-LM", MASKED_LM_COUNT, "predictions", _LEAST_TOKEN_GAIN),
        ("next_sentence_accuracy", "next-sentence", NEXT_SENTENCE_COUNT, "pairs", 0.0),
    ):
        score, level, count = metrics.get(name), level_of(name, metrics), metrics.get(count_name)
        if not isinstance(score, int | float) or level is None or not isinstance(count, int | float):
            continue
        words, value = level
        if is_near(score, value, count, least_share * value if least_share else LEAST_GAIN):
            warnings.append(
                f"The {task} accuracy {score:.3f} is not above that of always answering the {words} ({value:.3f}; "
                f"standard error {standard_error(value, count):.3f} of {count:,.0f} {kind}). The model has learned "
                f"little of the {task} task: train for more steps, with another --learning_rate, or on more text."
            )
    return warnings
