"""Test the masked-LM levels against the formulas written out over the whole vocabulary, token by token."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.metrics.ngram_baselines import BIGRAM, UNCHANGED, UNIGRAM, MaskedText, MaskRates, NgramModel

PAD, MASK, CLS = 0, 1, 2
VOCABULARY = 9


def masked_text(generator, rows, length=8, predictions=3) -> MaskedText:
    """Return random rows that begin with [CLS] and end in padding, masked as in BERT."""
    ids = generator.integers(CLS + 1, VOCABULARY, (rows, length))
    ids[:, 0] = CLS
    lengths = generator.integers(predictions + 1, length + 1, rows)
    is_token = np.arange(length) < lengths[:, None]
    ids[~is_token] = PAD
    positions = np.zeros((rows, predictions), np.int32)
    labels = np.zeros((rows, predictions), np.int32)
    is_predicted = np.zeros((rows, predictions), bool)
    for row in range(rows):
        count = int(generator.integers(1, predictions + 1))
        chosen = np.sort(generator.choice(np.arange(1, lengths[row]), count, replace=False))
        positions[row, :count], labels[row, :count], is_predicted[row, :count] = chosen, ids[row, chosen], True
        action = generator.random(count)
        random = generator.integers(CLS + 1, VOCABULARY, count)
        ids[row, chosen] = np.where(action < 0.6, MASK, np.where(action < 0.8, random, ids[row, chosen]))
    return MaskedText(ids.astype(np.int32), is_token, positions, labels, is_predicted)


def original_rows(text: MaskedText) -> list[list[int]]:
    rows = []
    for row, ids in enumerate(text.input_ids.tolist()):
        for slot, position in enumerate(text.positions[row]):
            if text.is_predicted[row, slot]:
                ids[position] = int(text.labels[row, slot])
        rows.append([token for token, real in zip(ids, text.is_token[row], strict=True) if real])
    return rows


class Oracle:
    """The formulas in the docstring of `ngram_baselines`, with dictionaries and a loop over the vocabulary."""

    def __init__(self, text: MaskedText) -> None:
        rows = original_rows(text)
        self.counts = Counter(token for row in rows for token in row if token != CLS)
        pairs = [pair for row in rows for pair in itertools.pairwise(row)]
        self.after = Counter(pair for pair in pairs if pair[1] != CLS)
        self.before = Counter((right, left) for left, right in pairs if left != CLS)

    def unigram(self, token: int) -> float:
        total, types = sum(self.counts.values()), len(self.counts)
        return (self.counts[token] + types / VOCABULARY) / (total + types)

    def beside(self, pairs: Counter, given_token: int, token: int) -> float:
        total = sum(count for (first, _), count in pairs.items() if first == given_token)
        types = sum(first == given_token for first, _ in pairs)
        if not total:
            return self.unigram(token)
        return (pairs[given_token, token] + types * self.unigram(token)) / (total + types)

    def distribution(self, name: str, left: int, visible: int, right: int, rates: MaskRates) -> list[float]:
        sides = [(self.after, left)] * (left != MASK) + [(self.before, right)] * (right != MASK)
        if name != BIGRAM or not sides:
            found = [self.unigram(token) for token in range(VOCABULARY)]
        else:
            found = [
                sum(self.beside(pairs, side, token) for pairs, side in sides) / len(sides)
                for token in range(VOCABULARY)
            ]
        assert sum(found) == pytest.approx(1)
        if name == UNIGRAM or visible == MASK:
            return found
        joint = [
            probability * (rates.unchanged * (token == visible) + rates.random / VOCABULARY)
            for token, probability in enumerate(found)
        ]
        return [probability / sum(joint) for probability in joint] if sum(joint) else found

    def level(self, name: str, text: MaskedText, rates: MaskRates, causal: bool) -> tuple[float, list[set[int]]]:
        """Return the loss, and the most probable tokens of each prediction: several if they are equally probable."""
        losses, best = [], []
        for row, slot in zip(*np.nonzero(text.is_predicted), strict=True):
            position = text.positions[row, slot]
            ids = [*text.input_ids[row].tolist(), MASK]
            right = MASK if causal else ids[position + 1]
            found = self.distribution(name, ids[position - 1], ids[position], right, rates)
            losses.append(-math.log(found[text.labels[row, slot]]))
            best.append({token for token in range(VOCABULARY) if found[token] > max(found) * (1 - 1e-9)})
        return sum(losses) / len(losses), best


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6), st.booleans(), st.sampled_from([0.2, 0.0]))
def test_levels_are_those_of_the_formulas(seed, counted, evaluated, causal, unchanged):
    generator = np.random.default_rng(seed)
    fitted, text = masked_text(generator, counted), masked_text(generator, evaluated)
    rates = MaskRates(unchanged, 0.2)
    levels = NgramModel(fitted, VOCABULARY, (CLS,)).levels(text, rates, MASK, causal=causal)
    assert list(levels) == [UNIGRAM, *([UNCHANGED] if unchanged else []), BIGRAM]
    oracle = Oracle(fitted)
    labels = text.labels[text.is_predicted]
    for name, level in levels.items():
        loss, best = oracle.level(name, text, rates, causal)
        assert level.loss == pytest.approx(loss)
        # Any of several equally probable tokens may be the prediction.
        surely = sum(tokens == {label} for tokens, label in zip(best, labels, strict=True))
        possibly = sum(label in tokens for tokens, label in zip(best, labels, strict=True))
        assert surely <= round(level.accuracy * len(labels)) <= possibly


def test_a_limit_on_predictions_keeps_the_first_rows():
    generator = np.random.default_rng(3)
    fitted, text = masked_text(generator, 8), masked_text(generator, 6)
    first = MaskedText(*(values[:2] for values in text))
    model = NgramModel(fitted, VOCABULARY, (CLS,))
    few = model.levels(text, MaskRates(0.1, 0.1), MASK, most=int(first.is_predicted.sum()))
    assert few == model.levels(first, MaskRates(0.1, 0.1), MASK)


def test_no_levels_without_predictions_or_text():
    text = masked_text(np.random.default_rng(0), 3)
    nothing = text._replace(is_predicted=np.zeros_like(text.is_predicted))
    padding = text._replace(is_token=np.zeros_like(text.is_token))
    assert NgramModel(text, VOCABULARY).levels(nothing, MaskRates(0.1, 0.1), MASK) == {}
    assert NgramModel(padding, VOCABULARY).levels(text, MaskRates(0.1, 0.1), MASK) == {}
