"""Test accuracies of minimal pairs against values computed by hand."""

import math
import statistics

import numpy as np
import pytest

from beambert.trainers.evaluation.minimal_pairs import MinimalPair
from beambert.trainers.evaluation.pair_scores import BLIMP, BLIMP_FIELDS, pair_scores, published_accuracies


def pairs_of(*groups):
    return [MinimalPair("a", "b", name, field, "file", n) for n, (field, name) in enumerate(groups)]


def test_a_tie_is_wrong():
    pairs = pairs_of(("f", "p"), ("f", "p"), ("f", "p"), ("f", "p"))
    scores = pair_scores(pairs, np.array([-1.0, -2.0, -3.0, -4.0]), np.array([-1.5, -2.0, -2.0, -4.0]))
    assert scores.ties == 2
    assert scores.paradigms[0].score == (0.25, pytest.approx(math.sqrt(0.25 * 0.75 / 4)), 4)
    constant = pair_scores(pairs, np.zeros(4), np.zeros(4))
    assert constant.mean_of_paradigms.accuracy == 0


def test_means_weight_paradigms_and_fields_equally():
    pairs = pairs_of(*[("f", "p")] * 4, *[("f", "q")] * 2, *[("g", "r")] * 2)
    good = np.array([1, 1, 1, 0, 1, 1, 1, 0.0])
    scores = pair_scores(pairs, good, np.full(8, 0.5))
    assert [(line.field, line.name, line.score.accuracy) for line in scores.paradigms] == [
        ("f", "p", 0.75),
        ("f", "q", 1.0),
        ("g", "r", 0.5),
    ]
    assert scores.fields["f"] == (0.875, pytest.approx(math.sqrt(0.75 * 0.25 / 4) / 2), 6)
    assert scores.mean_of_paradigms.accuracy == pytest.approx(2.25 / 3)
    error_of_g = math.sqrt(0.25 / 2)
    error_of_f = math.sqrt(0.75 * 0.25 / 4) / 2
    assert scores.mean_of_fields == (
        pytest.approx((0.875 + 0.5) / 2),
        pytest.approx(math.sqrt(error_of_f**2 + error_of_g**2) / 2),
        8,
    )
    assert scores.error_between_paradigms == pytest.approx(statistics.stdev([0.75, 1.0, 0.5]) / math.sqrt(3))


def test_without_fields_there_is_no_mean_of_fields():
    scores = pair_scores(pairs_of(("", "p"), ("f", "q")), np.ones(2), np.zeros(2))
    assert (scores.fields, scores.mean_of_fields) == ({}, None)
    single = pair_scores(pairs_of(("", "p")), np.ones(1), np.zeros(1))
    assert single.error_between_paradigms is None


def test_published_scores_belong_to_their_benchmark():
    assert published_accuracies(BLIMP_FIELDS, 67) == ("BLiMP", BLIMP)
    assert published_accuracies(BLIMP_FIELDS - {"binding"}, 60) == ("", ())
    assert published_accuracies(["agreement_subject_verb", "binding"], 23)[0] == "Zorro"
    assert published_accuracies(["agreement_subject_verb"], 5) == ("", ())
