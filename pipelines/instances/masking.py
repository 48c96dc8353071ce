"""Create masked language model targets for batches of rows.

Implements `create_masked_lm_predictions` of google-research/bert, create_pretraining_data.py (BERT paper, section 3.1),
with one difference: a random replacement is never a special or [unused] token, which the released code also draws.
"""

import dataclasses
import functools

import numpy as np

from beambert.pipelines.instances import word_masking
from beambert.pipelines.instances.layout import Rows
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION


@dataclasses.dataclass(frozen=True)
class MaskingVocabulary:
    """Properties of a vocabulary of V tokens for masking.

    Attributes:
        mask_id: id of [MASK].
        replacement_ids: int32 [k], candidates for random replacements: all except special and [unused] tokens.
        continues_word: bool [V], True for tokens that start with "##".
    """

    mask_id: int
    replacement_ids: np.ndarray
    continues_word: np.ndarray

    @classmethod
    @functools.lru_cache(maxsize=1)
    def from_vocabulary(cls, vocab: Vocabulary) -> "MaskingVocabulary":
        """Return the properties of a vocabulary; cached for the shards built with it."""
        return cls(
            mask_id=vocab.mask_id,
            replacement_ids=vocab.text_ids(),
            continues_word=np.array([token.startswith(CONTINUATION) for token in vocab.tokens]),
        )


@dataclasses.dataclass(frozen=True)
class Masked:
    """A masked batch of n rows of L positions with up to P predictions each.

    Attributes:
        input_ids: int32 [n, L], with replacements.
        positions: uint16 [n, P], ascending positions of the predictions, padded with zeros.
        label_ids: int32 [n, P], original tokens, padded with zeros.
        weights: float32 [n, P], 1 for a prediction, 0 for padding.
    """

    input_ids: np.ndarray
    positions: np.ndarray
    label_ids: np.ndarray
    weights: np.ndarray


def mask_rows(
    rows: Rows,
    max_predictions_per_seq: int,
    options: PretrainingDataOptions,
    vocab: MaskingVocabulary,
    rng: np.random.Generator,
) -> Masked:
    """Choose tokens to predict and replace them at the configured rates, by default 80 % [MASK] and 10 % random.

    A row gets round(length * masked_lm_prob) predictions, where length includes special tokens and rounding is
    Python's. The minimum is 1. The maximum is max_predictions_per_seq or the number of maskable tokens. Whole word
    masking may choose fewer tokens if no word is short enough for the remaining number.

    Whether a token is replaced by [MASK], replaced by a random token or kept is drawn per token, also within a whole
    word, as in google-research/bert. For spans it is drawn per span (SpanBERT, section 3.1), except that every random
    token is drawn separately.

    Args:
        rows: rows to mask, not modified; at most 65,536 positions each.
        max_predictions_per_seq: maximum number of predictions P.
        options: masking (except "dynamic"), masked_lm_prob and the three rates are used.
        vocab: properties of the vocabulary.
        rng: random generator.
    """
    count, width = rows.input_ids.shape
    ids = rows.input_ids.reshape(-1)
    maskable = np.flatnonzero(rows.maskable)  # [m], indices in the flattened rows
    maskable_in_row = np.count_nonzero(rows.maskable, axis=1)  # [n]
    wanted = np.clip(np.rint(rows.lengths * options.masked_lm_prob).astype(np.int64), 1, max_predictions_per_seq)
    wanted = np.minimum(wanted, maskable_in_row)

    if options.masking == "token":
        flat = _choose_tokens(maskable, maskable_in_row, wanted, rng)
        action = rng.random(len(flat), dtype=np.float32)  # [t]
    else:
        words = word_masking.words_of(ids, maskable, width, count, vocab.continues_word)
        if options.masking == "whole_word":
            flat, _ = words.positions(word_masking.choose_words(words, wanted, rng))
            action = rng.random(len(flat), dtype=np.float32)
        else:
            span_of_word = word_masking.choose_spans(words, wanted, rng)
            flat, word = words.positions(span_of_word >= 0)
            action = rng.random(span_of_word.max(initial=-1) + 1, dtype=np.float32)[span_of_word[word]]

    original = ids[flat]  # [t]
    replaced = np.where(action < options.mask_rate, np.int32(vocab.mask_id), original)
    becomes_random = np.flatnonzero((action >= options.mask_rate) & (action < options.mask_rate + options.random_rate))
    replaced[becomes_random] = vocab.replacement_ids[
        rng.integers(len(vocab.replacement_ids), size=len(becomes_random), dtype=np.int32)
    ]
    masked_ids = ids.copy()
    masked_ids[flat] = replaced

    row = flat // width  # [t]
    in_row = np.bincount(row, minlength=count)  # [n]
    slot = np.arange(len(flat)) + np.repeat(
        np.arange(count) * max_predictions_per_seq - np.cumsum(in_row) + in_row, in_row
    )
    shape = (count, max_predictions_per_seq)
    positions, label_ids, weights = np.zeros(shape, np.uint16), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    positions.reshape(-1)[slot] = flat - row * width
    label_ids.reshape(-1)[slot] = original
    weights.reshape(-1)[slot] = 1.0
    return Masked(masked_ids.reshape(count, width), positions, label_ids, weights)


def _choose_tokens(
    maskable: np.ndarray, maskable_in_row: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Sample uniformly without replacement in every row.

    Args:
        maskable: int64 [m], candidate indices in the flattened rows, ascending.
        maskable_in_row: int64 [n], number of candidates of each row.
        wanted: int64 [n], number of samples of each row.
        rng: random generator.

    Returns:
        int64 [wanted.sum()], the sampled indices, ascending.
    """
    # Floyd's algorithm (Bentley, Programming Pearls, CACM 30 (9), 1987), vectorized over rows. The i-th of k draws is
    # one of the first m - k + i candidates (i from 1), or the last of these if the draw was taken before.
    steps = int(wanted.max(initial=0))
    step_numbers = np.arange(steps, dtype=np.int32)[:, None]
    last = (maskable_in_row - wanted).astype(np.int32) + step_numbers  # [steps, n]
    chosen = (rng.random(last.shape, dtype=np.float32) * (last + 1).astype(np.float32)).astype(np.int32)
    for step in range(1, steps):
        drawn_before = (chosen[:step] == chosen[step]).any(axis=0)
        np.copyto(chosen[step], last[step], where=drawn_before)
    row_starts = np.cumsum(maskable_in_row) - maskable_in_row
    is_chosen = np.zeros(len(maskable), bool)
    is_chosen[(chosen + row_starts)[step_numbers < wanted]] = True
    return maskable[np.flatnonzero(is_chosen)]
