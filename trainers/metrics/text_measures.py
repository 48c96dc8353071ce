"""Measure properties of pretraining text that keep a model from learning: repetition, rare vocabulary, broken labels.

Letters in shapes: R rows, L tokens per row, N predictions in total. This file imports neither Keras nor TensorFlow.
"""

import dataclasses

import numpy as np

from beambert.common.typed_json import Count
from beambert.trainers.metrics.ngram_baselines import MaskedText

# A line that occurs this often in the sample is repeated; shorter windows occur often in any text.
WINDOW_TOKENS = 12
LEAST_REPEATS = 4
# A token with fewer occurrences in a copy of the data has an embedding that is hardly trained.
LEAST_OCCURRENCES = 20
# Multiplier of the hash of a window, an odd number below 2**64 (Knuth, TAOCP 2, section 3.3.4, table 1).
_MULTIPLIER = np.uint64(6364136223846793005)


@dataclasses.dataclass(frozen=True)
class TextMeasures:
    """Measured properties of a sample of pretraining text; fractions are from 0 to 1.

    Attributes:
        tokens: number of tokens in the counted part of the sample, without [CLS], [SEP] and padding.
        repeated: fraction of the windows of `WINDOW_TOKENS` that occur `LEAST_REPEATS` times or more.
        rare_vocabulary: fraction of the vocabulary with fewer than `LEAST_OCCURRENCES` in one copy of the data, without
            special tokens and single characters.
        predictions: number of predictions in the other part of the sample.
        masked: fraction of predictions at whose position [MASK] is visible; `expected_masked` by the options.
        unchanged: fraction of predictions whose label is visible at their position; `expected_unchanged` by the
            options.
        most_frequent_label: fraction of the most frequent label among the predictions.
        pairs: number of labels of next-sentence prediction; 0 without such labels.
        labeled_1: fraction of label 1 among them.
    """

    tokens: Count
    repeated: float
    rare_vocabulary: float
    predictions: Count
    masked: float
    expected_masked: float
    unchanged: float
    expected_unchanged: float
    most_frequent_label: float
    pairs: Count
    labeled_1: float


def repeated_fraction(ids: np.ndarray, is_text: np.ndarray) -> float:
    """Return the fraction of windows of `WINDOW_TOKENS` that occur `LEAST_REPEATS` times or more; 0 without windows.

    Args:
        ids: int32 [R, L], original tokens.
        is_text: bool [R, L]; a window has no other positions.
    """
    count = ids.shape[1] - WINDOW_TOKENS + 1
    if count < 1:
        return 0.0
    # Overflow of unsigned integers is the modulus of the hash.
    hashes = np.zeros((len(ids), count), np.uint64)
    whole = np.ones((len(ids), count), bool)
    for offset in range(WINDOW_TOKENS):
        hashes = hashes * _MULTIPLIER + ids[:, offset : offset + count].astype(np.uint64) + np.uint64(1)
        whole &= is_text[:, offset : offset + count]
    _, counts = np.unique(hashes[whole], return_counts=True)
    return float(counts[counts >= LEAST_REPEATS].sum() / max(counts.sum(), 1))


def rare_fraction(counts: np.ndarray, is_counted: np.ndarray, copy_tokens: float) -> float:
    """Return the fraction of tokens that are expected fewer than `LEAST_OCCURRENCES` times in a copy of the data.

    Args:
        counts: int [V], occurrences in the sample.
        is_counted: bool [V], the tokens to consider.
        copy_tokens: number of tokens in a copy of the data.
    """
    scale = max(copy_tokens / max(counts.sum(), 1), 1.0)
    # A token that is not in a sample of the data may still occur: half an occurrence is expected.
    expected = np.where(counts > 0, counts, 0.0 if scale == 1.0 else 0.5) * scale
    return float(np.mean(expected[is_counted] < LEAST_OCCURRENCES)) if is_counted.any() else 0.0


def label_fractions(text: MaskedText, mask_id: int) -> tuple[int, float, float, float]:
    """Return the number of predictions, and the fractions with [MASK] visible, unchanged, and of the top label."""
    row, slot = np.nonzero(text.is_predicted)
    if not len(row):
        return 0, 0.0, 0.0, 0.0
    visible, labels = text.input_ids[row, text.positions[row, slot]], text.labels[row, slot]
    top = np.bincount(labels).max() / len(labels)
    return len(row), float(np.mean(visible == mask_id)), float(np.mean(visible == labels)), float(top)
