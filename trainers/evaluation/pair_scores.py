"""Accuracies of minimal pairs, by paradigm, by field and overall, with standard errors.

A pair is correct if the good sentence has the strictly higher score. A tie is wrong, so that a model with constant
scores gets 0 %. Published accuracies are in percent, as published; `beambert.trainers.run_report.published_scores` has
the published scores of fine-tuning tasks.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from beambert.trainers.evaluation.minimal_pairs import MinimalPair

# The 12 phenomena of BLiMP, the fields of its paradigms.
BLIMP_FIELDS = frozenset(
    (
        *("anaphor_agreement", "argument_structure", "binding", "control_raising", "determiner_noun_agreement"),
        *("ellipsis", "filler_gap_dependency", "irregular_forms", "island_effects", "npi_licensing"),
        *("quantifiers", "subject_verb_agreement"),
    )
)
# Number of paradigms of Zorro.
ZORRO_PARADIGMS = 23
# Warstadt et al. 2023, Findings of the BabyLM Challenge: baselines on 10 and 100 million words; means of the published
# scores of 12 fields.
_BABYLM = "BabyLM challenge, derived"
# Masked Language Model Scoring, ACL 2020: pseudo-log-likelihood; people as reported by Warstadt et al. 2020.
_SALAZAR = "Salazar et al. 2020"
# BabyBERTa: Learning More Grammar With Small-Scale Child-Directed Language, CoNLL 2021.
_HUEBNER = "Huebner et al. 2021"


class Accuracy(NamedTuple):
    """An accuracy as a fraction, its standard error, and the number of pairs."""

    accuracy: float
    standard_error: float
    pairs: int


class ParadigmAccuracy(NamedTuple):
    """The accuracy of a paradigm, and its field, "" where it is unknown."""

    name: str
    field: str
    score: Accuracy


class PairScores(NamedTuple):
    """The scores of a set of minimal pairs.

    Attributes:
        paradigms: accuracy of each paradigm, sorted by field and name.
        fields: mean over the paradigms of each field, by name; empty where a paradigm has no field.
        mean_of_paradigms: mean over all paradigms.
        mean_of_fields: mean over the fields; None without fields.
        error_between_paradigms: standard error of `mean_of_paradigms` with the paradigms as a sample, from their
            standard deviation; None for a single paradigm. The pairs of a paradigm resemble each other, so that this is
            the error for a comparison with chance.
        ties: number of pairs with equal scores, which count as wrong.
    """

    paradigms: list[ParadigmAccuracy]
    fields: dict[str, Accuracy]
    mean_of_paradigms: Accuracy
    mean_of_fields: Accuracy | None
    error_between_paradigms: float | None
    ties: int


def pair_scores(pairs: Sequence[MinimalPair], good: np.ndarray, bad: np.ndarray) -> PairScores:
    """Return the scores of minimal pairs.

    The standard error of a paradigm is that of a proportion, sqrt(p (1 - p) / n). That of a mean assumes independent
    pairs and the given paradigms.

    Args:
        pairs: N pairs, at least one.
        good, bad: summed log-probabilities of the good and the bad sentences, float64 [N].
    """
    correct = good > bad
    indices: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        indices[pair.field, pair.paradigm].append(index)
    paradigms = [
        ParadigmAccuracy(name, field, _proportion(correct[of_paradigm]))
        for (field, name), of_paradigm in sorted(indices.items())
    ]
    of_field: dict[str, list[Accuracy]] = defaultdict(list)
    for paradigm in paradigms:
        of_field[paradigm.field].append(paradigm.score)
    fields = {} if "" in of_field else {name: mean_accuracy(scores) for name, scores in of_field.items()}
    return PairScores(
        paradigms,
        fields,
        mean_accuracy([paradigm.score for paradigm in paradigms]),
        mean_accuracy(list(fields.values())) if fields else None,
        _error_between([paradigm.score.accuracy for paradigm in paradigms]),
        int(np.count_nonzero(good == bad)),
    )


def mean_accuracy(scores: Sequence[Accuracy]) -> Accuracy:
    """Return the unweighted mean of independent accuracies."""
    count = len(scores)
    return Accuracy(
        sum(score.accuracy for score in scores) / count,
        math.sqrt(sum(score.standard_error**2 for score in scores)) / count,
        sum(score.pairs for score in scores),
    )


def _error_between(accuracies: Sequence[float]) -> float | None:
    """Return the standard error of the mean of a sample; None for a single value."""
    return statistics.stdev(accuracies) / math.sqrt(len(accuracies)) if len(accuracies) > 1 else None


def _proportion(correct: np.ndarray) -> Accuracy:
    accuracy = float(correct.mean())
    return Accuracy(accuracy, math.sqrt(accuracy * (1 - accuracy) / len(correct)), len(correct))


class PublishedAccuracy(NamedTuple):
    """A published accuracy and its source.

    Attributes:
        model: the model and its training data.
        accuracy: accuracy in percent.
        mean_of: what the accuracy is a mean of, "12 fields" or "paradigms".
        source: the publication.
    """

    model: str
    accuracy: float
    mean_of: str
    source: str


BLIMP = (
    PublishedAccuracy("GPT-2, 10M words", 65.1, "12 fields", _BABYLM),
    PublishedAccuracy("GPT-2, 100M words", 74.5, "12 fields", _BABYLM),
    PublishedAccuracy("LTG-BERT, 10M words", 60.6, "12 fields", _BABYLM),
    PublishedAccuracy("LTG-BERT, 100M words", 69.2, "12 fields", _BABYLM),
    PublishedAccuracy("RoBERTa base, 10M words", 69.5, "12 fields", _BABYLM),
    PublishedAccuracy("RoBERTa base, 100M words", 75.1, "12 fields", _BABYLM),
    PublishedAccuracy("BERT base, cased, released", 84.2, "paradigms", _SALAZAR),
    PublishedAccuracy("RoBERTa large, released", 86.5, "paradigms", _SALAZAR),
    PublishedAccuracy("people", 88.6, "paradigms", _SALAZAR),
)
ZORRO = (
    PublishedAccuracy("BabyBERTa, 5M words", 80.3, "paradigms", _HUEBNER),
    PublishedAccuracy("RoBERTa base, released", 82.6, "paradigms", _HUEBNER),
)


def published_accuracies(fields: Collection[str], paradigms: int) -> tuple[str, tuple[PublishedAccuracy, ...]]:
    """Return the name and the published accuracies of a benchmark, recognized by its fields and paradigms.

    Args:
        fields: names of the fields.
        paradigms: number of paradigms.

    Returns:
        The name "BLiMP" or "Zorro" with its accuracies; "" and none for other pairs.
    """
    if set(fields) == BLIMP_FIELDS:
        return "BLiMP", BLIMP
    if paradigms == ZORRO_PARADIGMS and any(name.startswith("agreement_subject_verb") for name in fields):
        return "Zorro", ZORRO
    return "", ()
