"""Test masks: the invariants of every row, the rates, and restoring the text from the labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.instances.instances import Rows
from beambert.pipelines.instances.masking import MaskingVocabulary, mask_rows
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.vocabulary import Vocabulary
from tests.pipelines.instances.reference_masking import segments_of

MASK = 4
REPLACEMENTS = np.arange(10, 1000, dtype=np.int32)
# A quarter of the tokens continue a word.
VOCAB = MaskingVocabulary(MASK, REPLACEMENTS, np.arange(1000) >= 750)
STRATEGIES = ("token", "whole_word", "span")


def mask(ids, lengths, maskable, slots, prob, rng, **options):
    options = PretrainingDataOptions(
        max_seq_length=max(8, ids.shape[1]), max_predictions_per_seq=1, masked_lm_prob=prob, **options
    )
    nothing = np.zeros((len(ids), 1))
    rows = Rows(ids, np.zeros_like(ids), np.ones_like(ids), lengths, maskable, nothing, nothing, nothing)
    return mask_rows(rows, slots, options, VOCAB, rng)


def batch(rng, rows, width):
    lengths = rng.integers(5, width + 1, size=rows)
    column = np.arange(width)
    maskable = (column >= 1) & (column < lengths[:, None] - 1) & (column != 2)
    ids = np.where(maskable, rng.integers(10, 1000, size=(rows, width)), 2).astype(np.int32)
    ids[column >= lengths[:, None]] = 0
    return ids, lengths, maskable


def words_of_row(ids, maskable, continues_word):
    return [word for segment in segments_of(maskable.tolist(), continues_word[ids].tolist()) for word in segment]


def check_rows(ids, lengths, maskable, masked, slots, prob, masking, vocab):
    """Check the invariants of every row, and that the labels restore the text."""
    restored = masked.input_ids.copy()
    for row in range(len(ids)):
        count = int(masked.weights[row].sum())
        wanted = min(slots, max(1, round(lengths[row] * prob)), maskable[row].sum())
        assert masked.weights[row].tolist() == [1.0] * count + [0.0] * (slots - count)
        positions = masked.positions[row, :count].astype(int)
        assert (np.diff(positions) > 0).all()
        assert maskable[row, positions].all()
        assert (masked.positions[row, count:] == 0).all()
        assert (masked.label_ids[row, count:] == 0).all()
        if masking == "token":
            assert count == wanted
        else:
            assert count <= wanted
            words = words_of_row(ids[row], maskable[row], vocab.continues_word)
            whole = [word for word in words if set(word) <= set(positions.tolist())]
            assert positions.tolist() == [position for word in whole for position in word]
            assert all(word in whole for word in words if len(word) <= wanted - count)
        restored[row, positions] = masked.label_ids[row, :count]
        elsewhere = np.ones(ids.shape[1], bool)
        elsewhere[positions] = False
        assert np.array_equal(masked.input_ids[row, elsewhere], ids[row, elsewhere])
        inserted = masked.input_ids[row, positions]
        assert (
            np.isin(inserted, np.append(vocab.replacement_ids, vocab.mask_id)) | (inserted == ids[row, positions])
        ).all()
    assert np.array_equal(restored, ids)


@pytest.mark.parametrize("masking", STRATEGIES)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    width=st.integers(5, 80),
    slots=st.integers(1, 90),
    prob=st.sampled_from([0.0, 0.15, 0.5, 1.0]),
)
def test_invariants_of_every_row(masking, seed, width, slots, prob):
    rng = np.random.default_rng(seed)
    ids, lengths, maskable = batch(rng, 40, width)
    before = ids.copy()
    masked = mask(ids, lengths, maskable, slots, prob, rng, masking=masking)
    assert np.array_equal(ids, before)
    check_rows(ids, lengths, maskable, masked, slots, prob, masking, VOCAB)


def test_rows_with_nothing_to_mask():
    ids = np.full((3, 9), 2, np.int32)
    maskable = np.zeros((3, 9), bool)
    maskable[1, 4:6] = True
    for masking in STRATEGIES:
        masked = mask(ids, np.full(3, 9), maskable, 3, 0.15, np.random.default_rng(1), masking=masking)
        assert masked.weights.sum(axis=1).tolist() == [0, 1, 0]


@pytest.mark.parametrize("rates", [(0.8, 0.1, 0.1), (0.0, 0.5, 0.5), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.6, 0.4, 0.0)])
@pytest.mark.parametrize("masking", STRATEGIES)
def test_rates_and_positions_of_long_rows(masking, rates):
    rng = np.random.default_rng(7)
    width, rows = 128, 20_000 if masking == "token" else 8_000
    ids = np.full((rows, width), 5, np.int32)
    maskable = np.ones((rows, width), bool)
    maskable[:, [0, 60, 127]] = False
    mask_rate, random_rate, keep_rate = rates
    options = {"masking": masking, "mask_rate": mask_rate, "random_rate": random_rate, "keep_rate": keep_rate}
    masked = mask(ids, np.full(rows, width), maskable, 20, 0.15, rng, **options)
    predicted = masked.weights > 0
    inserted = np.take_along_axis(masked.input_ids, masked.positions.astype(np.int64), axis=1)[predicted]
    n = len(inserted)
    assert n == rows * 19  # round(128 * 0.15)
    # The kind of replacement is drawn once per span, for at most ten words. Because longer spans weigh more, the
    # effective number of draws is n divided by the mean square of the lengths over their mean, 20.5 / 3.8.
    draws = n / 5.4 if masking == "span" else n
    kinds = [inserted == MASK, (inserted != MASK) & (inserted != 5), inserted == 5]
    for kind, expected in zip(kinds, rates, strict=True):
        assert abs(kind.mean() - expected) <= 3 * np.sqrt(expected * (1 - expected) / draws)
    replaced = inserted[kinds[1]]
    assert np.isin(replaced, REPLACEMENTS).all()
    if random_rate:
        assert len(np.unique(replaced)) == len(REPLACEMENTS)
    chosen = np.bincount(masked.positions[predicted], minlength=width)
    assert chosen[[0, 60, 127]].sum() == 0
    if masking != "span":  # Spans cover the beginnings of segments less often; see test_word_masking.
        expected_count = n / 125
        assert (abs(chosen[maskable[0]] - expected_count) < 5 * np.sqrt(expected_count)).all()


def test_replacement_is_drawn_per_span_but_not_per_word():
    rng = np.random.default_rng(8)
    rows, width = 3000, 40
    # All tokens of a row are predicted, and every word has two tokens.
    ids = np.tile(np.array([20, 800], np.int32), (rows, width // 2))
    everything = (ids, np.full(rows, width), np.ones((rows, width), bool), width, 1.0, rng)
    for masking, expected in (("whole_word", 0.8 * 0.8 + 0.1 * 0.1 + 0.1 * 0.1), ("span", 1.0)):
        masked = mask(*everything, masking=masking)
        kind = np.where(masked.input_ids == MASK, 0, np.where(masked.input_ids == ids, 1, 2))
        same = (kind[:, ::2] == kind[:, 1::2]).mean()
        # A random token equals the original one in one of a thousand cases.
        assert same == pytest.approx(expected, abs=0.01)
        if masking == "span":
            alike = (masked.input_ids[:, ::2] == masked.input_ids[:, 1::2])[kind[:, ::2] == 2]
            assert alike.mean() < 0.01


def test_a_random_replacement_is_never_special_or_unused():
    vocab = Vocabulary(("[PAD]", "[unused0]", "a", "[UNK]", "[CLS]", "##b", "[SEP]", "[MASK]", "[unused17]", "[x]"))
    assert MaskingVocabulary.from_vocabulary(vocab).replacement_ids.tolist() == [2, 5, 9]
