"""Test the measures of pretraining text against counts in plain Python."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.metrics.ngram_baselines import MaskedText
from beambert.trainers.metrics.text_measures import (
    LEAST_OCCURRENCES,
    LEAST_REPEATS,
    WINDOW_TOKENS,
    label_fractions,
    rare_fraction,
    repeated_fraction,
)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 40))
def test_repeated_windows_are_counted(seed, rows, length):
    generator = np.random.default_rng(seed)
    # A few distinct rows and shifted copies of them, with gaps.
    ids = generator.integers(0, 3, (2, 60))[generator.integers(0, 2, rows)]
    shift = generator.integers(0, 3, rows)
    ids = np.stack([row[first : first + length] for row, first in zip(ids, shift, strict=True)]).astype(np.int32)
    is_text = generator.random(ids.shape) < 0.97
    windows = Counter(
        tuple(ids[row, first : first + WINDOW_TOKENS].tolist())
        for row in range(rows)
        for first in range(length - WINDOW_TOKENS + 1)
        if is_text[row, first : first + WINDOW_TOKENS].all()
    )
    repeated = sum(count for count in windows.values() if count >= LEAST_REPEATS)
    expected = repeated / sum(windows.values()) if windows else 0.0
    assert repeated_fraction(ids, is_text) == pytest.approx(expected)


def test_rare_tokens_are_those_of_a_copy_not_of_the_sample():
    counts = np.array([0, 1, 5, LEAST_OCCURRENCES - 1, LEAST_OCCURRENCES, 1000])
    every, total = np.ones(6, bool), counts.sum()
    assert rare_fraction(counts, every, total) == 4 / 6
    # With ten times as much text, one occurrence in the sample counts as ten, and none counts as five.
    assert rare_fraction(counts, every, 10 * total) == 2 / 6
    assert rare_fraction(counts, every, 100 * total) == 0
    assert rare_fraction(counts, counts >= 5, total) == 2 / 4
    assert rare_fraction(counts, ~every, total) == 0
    assert rare_fraction(np.zeros(3, int), np.ones(3, bool), 0) == 1


def test_fractions_of_labels():
    ids = np.array([[9, 1, 7, 1], [1, 5, 5, 0]], np.int32)
    positions = np.array([[1, 2, 3], [0, 1, 0]])
    labels = np.array([[6, 7, 5], [5, 8, 0]])
    text = MaskedText(ids, ids > 0, positions, labels, np.array([[True, True, True], [True, True, False]]))
    # Token 1 is [MASK], visible at three of five predictions. One label is visible, and two labels are token 5.
    assert label_fractions(text, 1) == (5, 3 / 5, 1 / 5, 2 / 5)
    assert label_fractions(text._replace(is_predicted=np.zeros((2, 3), bool)), 1) == (0, 0, 0, 0)
