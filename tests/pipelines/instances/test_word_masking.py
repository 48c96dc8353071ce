"""Test whole words and spans: their invariants, and that their distribution is that of a plain loop."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.instances.masking import choose_spans, choose_words, words_of
from tests.pipelines.instances.reference_masking import probabilities_of_whole_words, segments_of, spans

# IDs below 100 continue a word, and 100 is special.
CONTINUES = np.arange(200) < 100
SPECIAL, BEGIN, CONTINUE = 100, 150, 50


def words_of_rows(ids):
    maskable = ids != SPECIAL
    return words_of(ids.reshape(-1), np.flatnonzero(maskable), ids.shape[1], len(ids), CONTINUES)


def random_ids(rng, rows, width):
    kinds = np.array([SPECIAL, BEGIN, CONTINUE], np.int32)
    return kinds[rng.choice(3, p=[0.1, 0.6, 0.3], size=(rows, width))]


def plain_segments(ids_of_row):
    return segments_of((ids_of_row != SPECIAL).tolist(), CONTINUES[ids_of_row].tolist())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 60))
def test_words_are_those_of_a_plain_loop(seed, width):
    ids = random_ids(np.random.default_rng(seed), 7, width)
    words = words_of_rows(ids)
    expected, segment_numbers = [], []
    for row in range(7):
        assert len(words) == words.row_starts[-1]
        for segment in plain_segments(ids[row]):
            expected += [[row * width + position for position in word] for word in segment]
            segment_numbers += [(row, segment[0][0])] * len(segment)
        assert words.row_starts[row + 1] == len(expected)
    found = [list(range(start, start + pieces)) for start, pieces in zip(words.starts, words.tokens, strict=True)]
    assert found == expected
    # Words have the same segment number if, and only if, they are in the same segment.
    assert len(set(zip(words.segments, segment_numbers, strict=True))) == len(set(segment_numbers))
    flat, word = words.positions(np.ones(len(words), bool))
    assert flat.tolist() == [position for each in expected for position in each]
    assert word.tolist() == [number for number, each in enumerate(expected) for _ in each]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 60), share=st.floats(0, 1))
def test_invariants_of_every_choice(seed, width, share):
    rng = np.random.default_rng(seed)
    ids = random_ids(rng, 20, width)
    wanted = (share * (ids != SPECIAL).sum(axis=1)).astype(np.int64)
    words = words_of_rows(ids)
    row_of_word = words.starts // width
    before = wanted.copy()
    taken = choose_words(words, wanted, rng)
    span_of_word = choose_spans(words, wanted, rng)
    assert np.array_equal(wanted, before)
    for chosen in (taken, span_of_word >= 0):
        left = wanted - np.bincount(row_of_word, weights=words.tokens * chosen, minlength=20)
        assert (left >= 0).all()
        # The remaining number of tokens is too small for any word that was not chosen.
        assert (words.tokens[~chosen] > left[row_of_word[~chosen]]).all()
    for span in range(span_of_word.max(initial=-1) + 1):
        members = np.flatnonzero(span_of_word == span)
        assert 1 <= len(members) <= 10
        assert (np.diff(members) == 1).all()
        assert len(set(words.segments[members])) == 1


def row(*segments):
    """Return a row of segments, each given by the number of tokens of each word."""
    ids = [SPECIAL]
    for segment in segments:
        for pieces in segment:
            ids += [BEGIN] + [CONTINUE] * (pieces - 1)
        ids.append(SPECIAL)
    return np.array(ids, np.int32)


@pytest.mark.parametrize("wanted", [1, 2, 3, 5])
def test_whole_words_have_the_probabilities_of_all_orders(wanted):
    ids, copies = row([1, 2, 3], [1, 2]), 30_000
    words = words_of_rows(np.tile(ids, (copies, 1)))
    taken = choose_words(words, np.full(copies, wanted), np.random.default_rng(1))
    kinds, counts = np.unique(taken.reshape(copies, 5), axis=0, return_counts=True)
    every = [word for segment in plain_segments(ids) for word in segment]
    expected = probabilities_of_whole_words(every, wanted)
    found = {
        tuple(position for word, is_taken in zip(every, kind, strict=True) if is_taken for position in word): count
        for kind, count in zip(kinds, counts, strict=True)
    }
    assert found.keys() == expected.keys()
    for chosen, probability in expected.items():
        assert abs(found[chosen] - copies * probability) < 5 * np.sqrt(copies * probability * (1 - probability)) + 1e-6


@pytest.mark.parametrize(
    ("segments", "wanted"),
    [
        (([1, 2, 1, 1, 3, 1, 1, 1, 2, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1, 1], [1, 1, 2, 1, 1, 1, 2, 1, 1, 1]), 6),
        (([1] * 40, [2] * 10, [1, 1]), 20),
        (([1, 1, 1], [3, 3]), 5),
    ],
)
def test_spans_are_distributed_like_those_of_a_plain_loop(segments, wanted):
    ids, copies, plain_copies = row(*segments), 20_000, 5_000
    every = [word for segment in plain_segments(ids) for word in segment]
    words = words_of_rows(np.tile(ids, (copies, 1)))
    span_of_word = choose_spans(words, np.full(copies, wanted), np.random.default_rng(3))
    masked = (span_of_word.reshape(copies, -1) >= 0).mean(axis=0)
    lengths = np.bincount(np.bincount(span_of_word[span_of_word >= 0]), minlength=11)[1:] / copies

    rng = random.Random(4)
    plain_masked, plain_lengths = np.zeros(len(every)), np.zeros(10)
    number = {tuple(word): i for i, word in enumerate(every)}
    for _ in range(plain_copies):
        for span in spans(plain_segments(ids), wanted, rng):
            plain_lengths[len(span) - 1] += 1
            for word in span:
                plain_masked[number[tuple(word)]] += 1
    # A word is masked or not. A row may have several spans of one length, and their number varies at most as a
    # Poisson variable does.
    share = plain_masked / plain_copies
    bound = 5 * np.sqrt(np.maximum(share * (1 - share), 1e-4) * (1 / copies + 1 / plain_copies))
    assert (abs(masked - share) < bound).all()
    a_row = plain_lengths / plain_copies
    assert (abs(lengths - a_row) < 5 * np.sqrt(np.maximum(a_row, 1e-4) * (1 / copies + 1 / plain_copies))).all()
