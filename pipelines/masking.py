"""Masked language model targets, for a batch of rows at once.

Follows `create_masked_lm_predictions` of google-research/bert's create_pretraining_data.py (paper, section 3.1), but
for one thing: a random replacement is never a special or [unused] token, which the released code draws too.
"""

import dataclasses
import functools

import numpy as np

from pipelines.layout import Rows
from pipelines.pretraining_options import PretrainingDataOptions
from tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class MaskingVocabulary:
    """What masking needs to know of a vocabulary of V pieces.

    Attributes:
        mask_id: id of [MASK].
        replacement_ids: int32 [k], what a random replacement is drawn from: all but special and [unused] pieces.
        continues_word: bool [V], pieces that begin with "##".
    """

    mask_id: int
    replacement_ids: np.ndarray
    continues_word: np.ndarray

    @classmethod
    @functools.lru_cache(maxsize=1)
    def of(cls, vocab: Vocabulary) -> "MaskingVocabulary":
        """Reads it off the pieces, once for all shards that are made with them."""
        return cls(
            mask_id=vocab.mask_id,
            replacement_ids=np.setdiff1d(np.arange(len(vocab), dtype=np.int32), vocab.special_ids()),
            continues_word=np.array([piece.startswith("##") for piece in vocab.pieces]),
        )


@dataclasses.dataclass(frozen=True)
class Masked:
    """A masked batch of n rows of L positions with room for P predictions.

    Attributes:
        input_ids: int32 [n, L], with the replacements.
        positions: int64 [n, P], ascending, then zeros.
        label_ids: int32 [n, P], the original tokens, then zeros.
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
    """Chooses tokens to predict and replaces them at the rates asked for: 80 % by [MASK], 10 % by a random token.

    A row of `length` positions gets round(length * masked_lm_prob) predictions (Python's rounding; special tokens
    count in the length), at least 1, at most max_predictions_per_seq.

    Args:
        rows: not changed; at least one maskable position a row.
        max_predictions_per_seq: P.
        options: masking, masked_lm_prob and the three rates are read.
        vocab: the pieces.
        rng: the only source of chance.
    """
    input_ids, maskable = rows.input_ids, rows.maskable
    count, width = input_ids.shape
    slots = max_predictions_per_seq
    wanted = np.clip(np.rint(rows.lengths * options.masked_lm_prob).astype(np.int64), 1, slots)
    wanted = np.minimum(wanted, maskable.sum(axis=1))

    # The tokens with the smallest of independent keys are a uniform choice without replacement.
    keys = np.where(maskable, rng.random((count, width)), 2.0)
    drawn = min(slots, width)
    nearest = np.argpartition(keys, drawn - 1, axis=1)[:, :drawn]
    by_key = np.argsort(np.take_along_axis(keys, nearest, axis=1), axis=1)
    positions = np.full((count, slots), width, dtype=np.int64)
    positions[:, :drawn] = np.take_along_axis(nearest, by_key, axis=1)
    positions[np.arange(slots)[None, :] >= wanted[:, None]] = width
    positions.sort(axis=1)
    predicted = positions < width
    positions[~predicted] = 0

    original = np.where(predicted, np.take_along_axis(input_ids, positions, axis=1), 0).astype(np.int32)
    action = rng.random((count, slots))
    random_ids = vocab.replacement_ids[(rng.random((count, slots)) * len(vocab.replacement_ids)).astype(np.int64)]
    replaced = np.where(
        action < options.mask_rate,
        vocab.mask_id,
        np.where(action < options.mask_rate + options.random_rate, random_ids, original),
    ).astype(np.int32)
    masked_ids = input_ids.copy()
    row, slot = np.nonzero(predicted)
    masked_ids[row, positions[row, slot]] = replaced[row, slot]
    return Masked(masked_ids, positions, original, predicted.astype(np.float32))
