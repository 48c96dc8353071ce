"""Compute the masked-LM loss and accuracy of n-gram baselines: what a model scores that uses no further context.

Three predictors of a masked token w, each with more of the input than the one before:

unigram    P(w) = (c(w) + T / V) / (N + T), the frequency in the text, for N tokens of T types and V vocabulary entries.
unchanged  The same, and the token visible at the position. Masking leaves a fraction k of the predicted tokens
           unchanged and replaces a fraction r by a random token, so that P(w | visible x) is proportional to
           P(w) (k [w = x] + r / V). Where [MASK] is visible, it is P(w).
bigram     In place of P(w), the mean of P(w | left) and P(w | right) for the visible neighbors; a neighbor that is
           [MASK] is left out. P(w | left) = (c(left, w) + T(left) P(w)) / (c(left) + T(left)), where T(left) is the
           number of different tokens after `left`; the right neighbor in the same way, by the tokens before it.

The smoothing of all three is that of Witten and Bell 1991, "The zero-frequency problem", method C, in the interpolated
form of Chen and Goodman 1998, "An empirical study of smoothing techniques for language modeling", section 2.5. The
counts are of one part of the text, the predictions of another.

Letters in shapes: R rows, L tokens per row, P predictions per row, V vocabulary entries, N predictions in total.
This file imports neither Keras nor TensorFlow.
"""

import math
from typing import NamedTuple

import numpy as np

# Names of the levels in `metrics`, and in messages: "past bigram".
UNIGRAM, UNCHANGED, BIGRAM = "unigram", "unchanged", "bigram"


class MaskedText(NamedTuple):
    """Masked rows of pretraining data.

    Attributes:
        input_ids: int32 [R, L], the rows with their masks, padded.
        is_token: bool [R, L], whether a position is not padding.
        positions, labels: int32 [R, P], positions and original tokens of the predictions.
        is_predicted: bool [R, P], whether a prediction exists.
    """

    input_ids: np.ndarray
    is_token: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    is_predicted: np.ndarray

    def original_ids(self) -> np.ndarray:
        """Return input_ids without masks, int32 [R, L]."""
        ids = self.input_ids.copy()
        row, slot = np.nonzero(self.is_predicted)
        ids[row, self.positions[row, slot]] = self.labels[row, slot]
        return ids


class MaskRates(NamedTuple):
    """The fractions of predicted tokens that are left unchanged and replaced by a random token."""

    unchanged: float
    random: float


class Level(NamedTuple):
    """The masked-LM score of a baseline.

    Attributes:
        loss: mean cross-entropy in nats.
        accuracy: fraction of correct predictions.
    """

    loss: float
    accuracy: float


class _Followers(NamedTuple):
    """The tokens beside each token in one direction, by ascending token.

    Attributes:
        starts: int64 [V + 1], bounds of each token's part of the other arrays.
        tokens: int64, the tokens beside it.
        weights: float64, Witten-Bell probabilities of these tokens without the part of the unigram.
        backoff: float64 [V], the weight of the unigram beside each token; 1 for a token without neighbors.
    """

    starts: np.ndarray
    tokens: np.ndarray
    weights: np.ndarray
    backoff: np.ndarray

    def beside(self, token: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens beside a token, and their weights."""
        part = slice(self.starts[token], self.starts[token + 1])
        return self.tokens[part], self.weights[part]


class NgramModel:
    """Counts of tokens and of neighbors in a text.

    Args:
        text: the rows to count; only the original tokens are read.
        vocab_size: V.
        ignored: ids of tokens that are never masked, such as [CLS] and [SEP]; they are counted as neighbors only.
    """

    def __init__(self, text: MaskedText, vocab_size: int, ignored: tuple[int, ...] = ()) -> None:
        ids = text.original_ids().astype(np.int64)
        self.counts = np.bincount(ids[text.is_token], minlength=vocab_size)  # [V]
        self.counts[list(ignored)] = 0
        total, types = int(self.counts.sum()), int(np.count_nonzero(self.counts))
        self.unigram = (self.counts + types / vocab_size) / max(total + types, 1)  # float64 [V]
        both = text.is_token[:, :-1] & text.is_token[:, 1:]
        left, right = ids[:, :-1][both], ids[:, 1:][both]
        self.after = _followers(left, right, vocab_size, ignored)
        self.before = _followers(right, left, vocab_size, ignored)

    def levels(
        self, text: MaskedText, rates: MaskRates, mask_id: int, *, causal: bool = False, most: int | None = None
    ) -> dict[str, Level]:
        """Return the levels of the predictions in a text, by name; empty if either text has none.

        Args:
            text: other rows than those counted.
            rates: how the rows are masked. Without unchanged tokens, there is no level of that name.
            mask_id: id of [MASK].
            causal: whether the model sees no right neighbors.
            most: maximum number of predictions, from the first rows.
        """
        row, slot = (index[:most] for index in np.nonzero(text.is_predicted))  # [N]
        if not len(row) or not self.counts.any():
            return {}
        position, label = text.positions[row, slot], text.labels[row, slot]
        ids = np.pad(text.input_ids, [(0, 0), (1, 1)], constant_values=mask_id)
        left, visible, right = (ids[row, position + offset] for offset in range(3))
        if causal:
            right = np.full_like(right, mask_id)
        top = int(self.unigram.argmax())
        names = (UNIGRAM, *((UNCHANGED,) if rates.unchanged > 0 else ()), BIGRAM)
        losses, correct = np.zeros(len(names)), np.zeros(len(names))
        dense = np.zeros(len(self.unigram))
        for before, seen, after, answer in np.stack([left, visible, right, label], axis=1).tolist():
            beside = [*([self.after, before],) * (before != mask_id), *([self.before, after],) * (after != mask_id)]
            for index, name in enumerate(names):
                # The last two candidates are the label and the visible token.
                candidates, probability = self._candidates(beside if name == BIGRAM else [], top, answer, seen, dense)
                if name != UNIGRAM and seen != mask_id:
                    probability = _given_visible(probability, candidates == seen, rates, len(self.unigram))
                losses[index] -= math.log(max(probability[-2], 1e-300))
                correct[index] += candidates[probability.argmax()] == answer
        return {
            name: Level(float(loss) / len(row), float(right) / len(row))
            for name, loss, right in zip(names, losses, correct, strict=True)
        }

    def _candidates(
        self, beside: list, top: int, answer: int, seen: int, dense: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens that may be the most probable, the label and the visible token, with probabilities.

        Any other token has the backed-off probability of the unigram, of which `top` has the largest.

        Args:
            beside: pairs of followers and the visible neighbor.
            top: most frequent token.
            answer, seen: the label and the visible token.
            dense: zeros, float64 [V]; zeros again afterwards.
        """
        lists = [followers.beside(token) for followers, token in beside]
        backoff = sum(followers.backoff[token] for followers, token in beside) / len(beside) if beside else 1.0
        for tokens, weights in lists:
            dense[tokens] += weights / len(lists)
        candidates = np.concatenate([*(tokens for tokens, _ in lists), [top, answer, seen]])
        probability = backoff * self.unigram[candidates] + dense[candidates]
        for tokens, _ in lists:
            dense[tokens] = 0.0
        return candidates, probability


def _given_visible(probability: np.ndarray, is_visible: np.ndarray, rates: MaskRates, vocab_size: int) -> np.ndarray:
    """Return the probabilities of candidates after the visible token is known, whose own is the last one."""
    other = rates.random / vocab_size
    total = other + rates.unchanged * probability[-1]
    return probability * np.where(is_visible, rates.unchanged + other, other) / total if total > 0 else probability


def _followers(given: np.ndarray, beside: np.ndarray, vocab_size: int, ignored: tuple[int, ...]) -> _Followers:
    """Return the followers of each token, from pairs int64 [n] of a token and the token beside it."""
    text = ~np.isin(beside, ignored)
    codes, counts = np.unique(given[text] * vocab_size + beside[text], return_counts=True)
    given, tokens = np.divmod(codes, vocab_size)
    starts = np.searchsorted(given, np.arange(vocab_size + 1))
    types = np.diff(starts)  # [V]
    totals = np.bincount(given, counts, minlength=vocab_size) + types  # [V]
    backoff = np.divide(types, totals, out=np.ones(vocab_size), where=totals > 0)
    return _Followers(starts, tokens, counts / totals[given], backoff)
