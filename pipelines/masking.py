"""Masked language model targets, for a batch of rows at once.

Follows `create_masked_lm_predictions` of google-research/bert's create_pretraining_data.py (paper, section 3.1), but
for one thing: a random replacement is never a special or [unused] token, which the released code draws too.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Masked:
    """A masked batch of n rows of L tokens with room for P predictions.

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


def mask_tokens(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    maskable: np.ndarray,
    max_predictions_per_seq: int,
    masked_lm_prob: float,
    mask_id: int,
    replacement_ids: np.ndarray,
    rng: np.random.Generator,
) -> Masked:
    """Chooses tokens to predict and replaces 80 % by [MASK] and 10 % by a random token; 10 % stay as they are.

    A row of `length` tokens gets round(length * masked_lm_prob) predictions (Python's rounding; special tokens count
    in the length), at least 1, at most max_predictions_per_seq.

    Args:
        input_ids: int32 [n, L], not changed.
        lengths: int64 [n], tokens before the padding.
        maskable: bool [n, L]; at least one a row.
        max_predictions_per_seq: P.
        masked_lm_prob: share of tokens to predict.
        mask_id: id of [MASK].
        replacement_ids: int32 [k], the tokens that a random replacement is drawn from.
        rng: the only source of chance.
    """
    rows, width = input_ids.shape
    slots = max_predictions_per_seq
    wanted = np.clip(np.rint(lengths * masked_lm_prob).astype(np.int64), 1, slots)
    wanted = np.minimum(wanted, maskable.sum(axis=1))

    # The tokens with the smallest of independent keys are a uniform choice without replacement.
    keys = np.where(maskable, rng.random((rows, width)), 2.0)
    drawn = min(slots, width)
    nearest = np.argpartition(keys, drawn - 1, axis=1)[:, :drawn]
    by_key = np.argsort(np.take_along_axis(keys, nearest, axis=1), axis=1)
    positions = np.full((rows, slots), width, dtype=np.int64)
    positions[:, :drawn] = np.take_along_axis(nearest, by_key, axis=1)
    positions[np.arange(slots)[None, :] >= wanted[:, None]] = width
    positions.sort(axis=1)
    predicted = positions < width
    positions[~predicted] = 0

    original = np.where(predicted, np.take_along_axis(input_ids, positions, axis=1), 0).astype(np.int32)
    action = rng.random((rows, slots))
    random_ids = replacement_ids[(rng.random((rows, slots)) * len(replacement_ids)).astype(np.int64)]
    replaced = np.where(action < 0.8, mask_id, np.where(action < 0.9, original, random_ids)).astype(np.int32)
    masked_ids = input_ids.copy()
    row, slot = np.nonzero(predicted)
    masked_ids[row, positions[row, slot]] = replaced[row, slot]
    return Masked(masked_ids, positions, original, predicted.astype(np.float32))
