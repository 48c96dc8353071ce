"""Compute masked-LM loss, accuracy and pseudo-perplexity of windows of text.

Letters in shapes: N distinct windows, S_i tokens of window i.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.data.dynamic_masking import DynamicMasking, mask_batch
from beambert.trainers.evaluation.text_windows import Windows, content_keys
from beambert.trainers.inference.forward import padded
from beambert.trainers.inference.masked_scoring import MaskedScorer, Report

# Masking of the paper (section 3.1, task 1) and of `beambert pretraining-data` by default.
MASKED_LM_PROB, MASK_RATE, RANDOM_RATE = 0.15, 0.8, 0.1
_WINDOWS_A_CHUNK = 1024


class MeanScore(NamedTuple):
    """A mean over tokens.

    Attributes:
        mean: sum of the values divided by the number of tokens.
        standard_error: of the mean, with windows as independent samples; None for a single window.
        tokens: number of tokens.
    """

    mean: float
    standard_error: float | None
    tokens: int


class MaskedLmScores(NamedTuple):
    """Masked-LM loss in nats, and accuracy as a fraction, of the masked tokens."""

    loss: MeanScore
    accuracy: MeanScore


def masked_lm_scores(scorer: MaskedScorer, windows: Windows, report: Report | None = None) -> MaskedLmScores:
    """Return masked-LM loss and accuracy with 15 % of the tokens masked.

    The masks follow the rules of the pretraining data, are drawn from a hash of the window, and mask no token twice.

    Args:
        scorer: scorer of the model.
        windows: at least one window.
        report: called after each window.
    """
    losses, hits, tokens = (np.zeros(len(windows.rows)) for _ in range(3))
    for start in range(0, len(windows.rows), _WINDOWS_A_CHUNK):
        chunk = windows.rows[start : start + _WINDOWS_A_CHUNK]
        rows, positions, labels = masked_windows(chunk, scorer.vocabulary, scorer.max_seq_length)
        for index, scores, is_best in scorer.predictions(rows, positions, labels):
            losses[start + index] = -scores.sum(dtype=np.float64)
            hits[start + index] = np.count_nonzero(is_best)
            tokens[start + index] = len(scores)
            if report:
                report(len(scores), len(rows[index]))
    return MaskedLmScores(
        mean_score(losses, tokens, windows.counts),
        mean_score(hits, tokens, windows.counts),
    )


def masked_windows(
    rows: Sequence[np.ndarray], vocabulary: Vocabulary, max_seq_length: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Return masked rows, the masked positions, and the original tokens there.

    Args:
        rows: token ids from [CLS] to [SEP], int32 [S_i] each.
        vocabulary: vocabulary of the model.
        max_seq_length: maximum length of a row.
    """
    masking = DynamicMasking(
        MASKED_LM_PROB,
        MASK_RATE,
        RANDOM_RATE,
        mask_id=vocabulary.mask_id,
        cls_id=vocabulary.cls_id,
        sep_id=vocabulary.sep_id,
        replacement_ids=vocabulary.text_ids(),
    )
    lengths = [len(row) for row in rows]
    input_mask = (np.arange(max_seq_length) < np.array(lengths)[:, None]).astype(np.int32)
    features = {"input_ids": padded(rows, vocabulary.pad_id, max_seq_length), "input_mask": input_mask}
    most = max(1, round(max_seq_length * MASKED_LM_PROB))
    masked = mask_batch(features, masking, most, content_keys(rows))
    counts = np.count_nonzero(masked["masked_lm_weights"], axis=1)
    return (
        [row[:length] for row, length in zip(masked["input_ids"], lengths, strict=True)],
        [row[:count] for row, count in zip(masked["masked_lm_positions"], counts, strict=True)],
        [row[:count] for row, count in zip(masked["masked_lm_ids"], counts, strict=True)],
    )


def pseudo_log_likelihood(
    scorer: MaskedScorer, windows: Windows, *, whole_word: bool = False, report: Report | None = None
) -> MeanScore:
    """Return the mean negative log-probability of the tokens, each masked in turn; its exponential is the perplexity.

    Args:
        scorer: scorer of the model.
        windows: at least one window.
        whole_word, report: as for `MaskedScorer.token_log_probabilities`.
    """
    scores = scorer.token_log_probabilities(windows.rows, whole_word=whole_word, report=report)
    sums = np.array([-of_row.sum(dtype=np.float64) for of_row in scores])
    return mean_score(sums, np.array([len(of_row) for of_row in scores], np.float64), windows.counts)


def mean_score(sums: np.ndarray, tokens: np.ndarray, counts: np.ndarray) -> MeanScore:
    """Return the mean over the tokens of windows, with the standard error of a ratio of sums.

    Args:
        sums: sum of the values of each distinct window, float64 [N].
        tokens: number of tokens of each distinct window, float64 [N].
        counts: number of occurrences of each window, int64 [N].
    """
    total, number = float((tokens * counts).sum()), int(counts.sum())
    mean = float((sums * counts).sum()) / total
    if number < 2:
        return MeanScore(mean, None, int(total))
    residuals = sums - mean * tokens
    variance = float((residuals**2 * counts).sum()) * number / (number - 1)
    return MeanScore(mean, math.sqrt(variance) / total, int(total))
