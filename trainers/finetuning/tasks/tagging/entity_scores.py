"""Precision, recall and F1 of entities, as in conlleval and seqeval: boundaries and type must match."""

from typing import NamedTuple

import numpy as np

from beambert.trainers.finetuning.tasks.tagging.tag_schemes import Entities


class Scores(NamedTuple):
    """Scores of all entities or of one type, from 0 to 1; 0 where the denominator is 0.

    Attributes:
        precision: fraction of the predicted entities that are correct.
        recall: fraction of the true entities that are predicted.
        f1: harmonic mean of precision and recall.
        true: number of true entities.
    """

    precision: float
    recall: float
    f1: float
    true: int


def entity_scores(true: Entities, predicted: Entities) -> tuple[Scores, dict[str, Scores]]:
    """Return scores of all entities together (the micro average) and of each type, in alphabetical order.

    Args:
        true: true entities of all sentences, with word indices over all sentences.
        predicted: predicted entities of the same sentences.
    """
    _, in_true, in_predicted = np.intersect1d(true.starts, predicted.starts, assume_unique=True, return_indices=True)
    same = true.ends[in_true] == predicted.ends[in_predicted]
    same &= true.types[in_true] == predicted.types[in_predicted]
    right = true.types[in_true][same]
    by_type = {
        kind: _scores(int((right == kind).sum()), int((predicted.types == kind).sum()), int((true.types == kind).sum()))
        for kind in sorted({*true.types.tolist(), *predicted.types.tolist()})
    }
    return _scores(len(right), len(predicted.starts), len(true.starts)), by_type


def _scores(right: int, predicted: int, true: int) -> Scores:
    precision = right / predicted if predicted else 0.0
    recall = right / true if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return Scores(precision, recall, f1, true)
