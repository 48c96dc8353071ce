"""Masks: what must hold of each, their rates, and the text restored."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.layout import Rows
from pipelines.masking import MaskingVocabulary, mask_rows
from pipelines.pretraining_options import PretrainingDataOptions

MASK = 4
REPLACEMENTS = np.arange(10, 1000, dtype=np.int32)


VOCAB = MaskingVocabulary(MASK, REPLACEMENTS, np.zeros(1000, bool))


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


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    width=st.integers(5, 80),
    slots=st.integers(1, 90),
    prob=st.sampled_from([0.0, 0.15, 0.5, 1.0]),
)
def test_what_holds_of_every_row(seed, width, slots, prob):
    rng = np.random.default_rng(seed)
    ids, lengths, maskable = batch(rng, 40, width)
    before = ids.copy()
    masked = mask(ids, lengths, maskable, slots, prob, rng)
    assert np.array_equal(ids, before)
    restored = masked.input_ids.copy()
    for row in range(len(ids)):
        count = int(masked.weights[row].sum())
        wanted = min(slots, max(1, round(lengths[row] * prob)), maskable[row].sum())
        assert count == wanted
        assert masked.weights[row].tolist() == [1.0] * count + [0.0] * (slots - count)
        positions = masked.positions[row, :count]
        assert (np.diff(positions) > 0).all()
        assert maskable[row, positions].all()
        assert (masked.positions[row, count:] == 0).all()
        assert (masked.label_ids[row, count:] == 0).all()
        restored[row, positions] = masked.label_ids[row, :count]
        elsewhere = np.ones(width, bool)
        elsewhere[positions] = False
        assert np.array_equal(masked.input_ids[row, elsewhere], ids[row, elsewhere])
        inserted = masked.input_ids[row, positions]
        assert np.isin(inserted, np.append(REPLACEMENTS, MASK)).all()
    assert np.array_equal(restored, ids)


def test_rates_are_80_10_10_and_positions_uniform():
    rng = np.random.default_rng(7)
    width, rows = 128, 20_000
    ids = np.full((rows, width), 5, np.int32)
    maskable = np.ones((rows, width), bool)
    maskable[:, [0, 60, 127]] = False
    masked = mask(ids, np.full(rows, width), maskable, 20, 0.15, rng)
    predicted = masked.weights > 0
    inserted = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[predicted]
    n = len(inserted)
    assert n == rows * 19  # round(128 * 0.15)
    for share, expected in (((inserted == MASK).mean(), 0.8), ((inserted == 5).mean(), 0.1)):
        assert abs(share - expected) < 3 * np.sqrt(expected * (1 - expected) / n)
    chosen = np.bincount(masked.positions[predicted], minlength=width)
    assert chosen[[0, 60, 127]].sum() == 0
    expected_count = n / 125
    assert (abs(chosen[maskable[0]] - expected_count) < 5 * np.sqrt(expected_count)).all()
    replaced = inserted[(inserted != MASK) & (inserted != 5)]
    assert len(np.unique(replaced)) == len(REPLACEMENTS)
