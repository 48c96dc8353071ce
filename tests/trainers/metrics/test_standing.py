"""Test which level a run has passed."""

import pytest

from beambert.trainers.metrics.baseline_record import in_order, passed_at, standing
from beambert.trainers.metrics.ngram_baselines import Level

LEVELS = {"bigram": Level(4.8, 0.24), "unigram": Level(7.0, 0.05), "unchanged": Level(6.4, 0.14)}


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (9.0, "not past unigram"),
        (7.0, "not past unigram"),
        (6.99, "past unigram"),
        (6.39, "past unchanged"),
        (4.8, "past unchanged"),
        (4.79, "past bigram"),
        (None, None),
    ],
)
def test_the_last_level_passed(loss, words):
    assert standing({"masked_lm_loss": loss}, LEVELS) == words


def test_standing_is_none_without_levels_or_loss():
    assert standing({"masked_lm_loss": 1.0}, {}) is None
    assert standing({"loss": 1.0}, LEVELS) is None
    assert passed_at([{"step": 1, "masked_lm_loss": None}, {"step": 2}], LEVELS) == {}


def test_a_level_is_passed_at_the_first_step_below_it():
    losses = {10: 8.0, 20: 6.9, 30: 7.1, 40: 6.0, 50: 6.5}
    lines = [{"step": step, "masked_lm_loss": loss} for step, loss in losses.items()]
    assert passed_at(lines, LEVELS) == {"unigram": 20, "unchanged": 40}
    assert in_order(LEVELS) == ["unigram", "unchanged", "bigram"]
