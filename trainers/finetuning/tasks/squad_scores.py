"""Exact match and F1 of answers, as in the official evaluation scripts of SQuAD 1.1 and 2.0.

The scripts are evaluate-v1.1.py and evaluate-v2.0.py of https://rajpurkar.github.io/SQuAD-explorer/.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=2**16)
def normalized(text: str) -> str:
    """Return an answer in lower case, without ASCII punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(gold: str, prediction: str) -> float:
    """Return 1 for answers that are equal after normalization, else 0."""
    return float(normalized(gold) == normalized(prediction))


def f1_score(gold: str, prediction: str) -> float:
    """Return the F1 of the word multisets of two normalized answers; 0 without a common word."""
    gold_words, words = normalized(gold).split(), normalized(prediction).split()
    common = sum((Counter(gold_words) & Counter(words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def scores_of_1_1(golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> dict[str, float]:
    """Return the scores of SQuAD 1.1, in percent.

    Args:
        golds: reference answers of each question, one or more.
        predictions: predicted answer of each question.

    Returns:
        exact_match and f1: means over the questions of the maximum over the reference answers.
    """
    pairs = list(zip(golds, predictions, strict=True))
    exact = [max(exact_match(gold, prediction) for gold in answers) for answers, prediction in pairs]
    f1 = [max(f1_score(gold, prediction) for gold in answers) for answers, prediction in pairs]
    return {"exact_match": _percent(exact), "f1": _percent(f1)}


class Scores(NamedTuple):
    """Scores of SQuAD 2.0 per question, float64 [Q] from 0 to 1, and whether it has an answer, bool [Q]."""

    exact: np.ndarray
    f1: np.ndarray
    has_answer: np.ndarray


def question_scores(golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> Scores:
    """Score each question by the rules of SQuAD 2.0.

    Args:
        golds: reference answers of each question; empty where it has no answer.
        predictions: predicted answer of each question, "" for no answer.
    """
    exact, f1 = [], []
    for answers, prediction in zip(golds, predictions, strict=True):
        # Answers such as "the" are empty after normalization; without any other, no answer is correct.
        answers = [answer for answer in answers if normalized(answer)] or [""]
        exact.append(max(exact_match(gold, prediction) for gold in answers))
        f1.append(max(_f1_or_agreement(gold, prediction) for gold in answers))
    has_answer = np.array([bool(answers) for answers in golds], bool)
    return Scores(np.array(exact, np.float64), np.array(f1, np.float64), has_answer)


def scores_of_2_0(
    golds: Sequence[Sequence[str]], predictions: Sequence[str], null_odds: Sequence[float]
) -> dict[str, float]:
    """Return the scores of SQuAD 2.0, in percent, as the script gives them for predictions.json and null_odds.json.

    The script's option --na-prob-thresh does not apply, since the threshold is already applied to the predictions.

    Args:
        golds, predictions: as for `question_scores`.
        null_odds: null odds of each question.

    Returns:
        exact, f1, total; the same with prefix HasAns_ and NoAns_ for questions with and without an answer, where there
        are any; best_exact, best_exact_thresh, best_f1, best_f1_thresh of `best_threshold`.
    """
    scores = question_scores(golds, predictions)
    groups = {"": np.full(len(golds), True), "HasAns_": scores.has_answer, "NoAns_": ~scores.has_answer}
    results: dict[str, float] = {}
    for prefix, group in groups.items():
        if group.any():
            results[f"{prefix}exact"] = _percent(scores.exact[group].tolist())
            results[f"{prefix}f1"] = _percent(scores.f1[group].tolist())
            results[f"{prefix}total"] = int(group.sum())
    for name, values in (("exact", scores.exact), ("f1", scores.f1)):
        best, threshold = best_threshold(values, scores.has_answer, predictions, null_odds)
        results |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return results


def best_threshold(
    scores: np.ndarray, has_answer: np.ndarray, predictions: Sequence[str], null_odds: Sequence[float]
) -> tuple[float, float]:
    """Return the best threshold of the null odds; questions above it get no answer.

    Args:
        scores: float64 [Q], scores of the predictions.
        has_answer: bool [Q].
        predictions: predicted answers; "" stays "".
        null_odds: null odds of each question.

    Returns:
        The score in percent, and the threshold: the smallest of the best null odds, or 0 where answering no question is
        best.
    """
    odds, sums = _sums_by_answered(scores, has_answer, predictions, null_odds)
    best = int(np.argmax(sums))
    return 100.0 * float(sums[best]) / len(scores), float(odds[best - 1]) if best else 0.0


def applied_threshold(
    scores: np.ndarray, has_answer: np.ndarray, predictions: Sequence[str], null_odds: Sequence[float]
) -> float:
    """Return the threshold with the highest score when it is applied to the null odds.

    It differs from that of `best_threshold`, the script's, in two cases. Where answering no question is best, it is
    less than all null odds. Questions with equal null odds are all answered, or none of them is.

    Args:
        scores, has_answer, predictions, null_odds: as for `best_threshold`.
    """
    odds, sums = _sums_by_answered(scores, has_answer, predictions, null_odds)
    sums[1:-1][odds[:-1] == odds[1:]] = -1.0
    best = int(np.argmax(sums))
    return float(odds[best - 1] if best else np.nextafter(odds[0], -np.inf))


def _sums_by_answered(
    scores: np.ndarray, has_answer: np.ndarray, predictions: Sequence[str], null_odds: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted null odds, [Q], and the sum of scores if the first 0 to Q of their questions are answered."""
    odds = np.array(null_odds, np.float64)
    order = np.argsort(odds, kind="stable")
    # Gain of answering each question, in the order of the null odds, starting with no answer to any question.
    answered = np.array([bool(prediction) for prediction in predictions], bool)
    gains = np.where(has_answer, scores, -1.0 * answered)[order]
    return odds[order], np.cumsum([float((~has_answer).sum()), *gains])


def _f1_or_agreement(gold: str, prediction: str) -> float:
    """Return F1; where one answer has no words, 1 if the other has none either, else 0."""
    if not normalized(gold) or not normalized(prediction):
        return float(normalized(gold) == normalized(prediction))
    return f1_score(gold, prediction)


def _percent(scores: Sequence[float]) -> float:
    return 100.0 * sum(scores) / len(scores)
