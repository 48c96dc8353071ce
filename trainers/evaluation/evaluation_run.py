"""Evaluate a model on windows of text and on minimal pairs, with progress on standard error."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beambert.common.progress import TextProgress
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.data.text_encoding import example_and_remedy
from beambert.trainers.errors import TrainingError
from beambert.trainers.evaluation.evaluation_results import PairResults, TextResults
from beambert.trainers.evaluation.minimal_pairs import MinimalPair
from beambert.trainers.evaluation.pair_scores import pair_scores
from beambert.trainers.evaluation.text_scores import masked_lm_scores, pseudo_log_likelihood
from beambert.trainers.evaluation.text_windows import Windows, sample_windows
from beambert.trainers.inference.masked_scoring import MaskedScorer, Report, computed_positions
from beambert.trainers.monitoring.training_progress import warn

# Fraction of pairs with [UNK], or with equal tokens, above which scores say little.
_MOST_PAIRS = 0.05


class EncodedPairs(NamedTuple):
    """Minimal pairs as token ids.

    Attributes:
        pairs: N pairs.
        rows: the distinct sentences, int32 [S_i] each, from [CLS] to [SEP].
        good, bad: index of each sentence in `rows`, int64 [N].
    """

    pairs: Sequence[MinimalPair]
    rows: list[np.ndarray]
    good: np.ndarray
    bad: np.ndarray


def encode_pairs(pairs: Sequence[MinimalPair], tokenizer: Tokenizer, max_seq_length: int) -> EncodedPairs:
    """Encode minimal pairs.

    Args:
        pairs: N pairs.
        tokenizer: tokenizer of the model.
        max_seq_length: maximum number of tokens of a sentence, including [CLS] and [SEP].

    Raises:
        TrainingError: a sentence is longer, or has no tokens.
    """
    vocabulary = tokenizer.vocabulary
    index_of: dict[bytes, int] = {}
    rows: list[np.ndarray] = []
    ids, splits = tokenizer.encode_batch([sentence for pair in pairs for sentence in (pair.good, pair.bad)])
    indices = []
    for number, (start, end) in enumerate(itertools.pairwise(splits.tolist())):
        length = end - start + 2
        if start == end:
            raise TrainingError(f"{pairs[number // 2].location}: a sentence has no tokens: remove the pair")
        if length > max_seq_length:
            raise TrainingError(
                f"{pairs[number // 2].location}: a sentence has {length} tokens with [CLS] and [SEP], more than "
                f"--max_seq_length {max_seq_length}: increase it, up to the model's limit, or remove the pair"
            )
        row = np.concatenate([[vocabulary.cls_id], ids[start:end], [vocabulary.sep_id]]).astype(np.int32)
        index = index_of.setdefault(row.tobytes(), len(rows))
        if index == len(rows):
            rows.append(row)
        indices.append(index)
    of_pair = np.array(indices, np.int64).reshape(-1, 2)
    return EncodedPairs(pairs, rows, of_pair[:, 0], of_pair[:, 1])


def evaluate_pairs(
    scorer: MaskedScorer, tokenizer: Tokenizer, encoded: EncodedPairs, all_pairs: int, whole_word: bool
) -> PairResults:
    """Return the results on minimal pairs.

    Args:
        scorer, tokenizer: scorer and tokenizer of the model.
        encoded: at least one pair.
        all_pairs: number of pairs of the files.
        whole_word: as for `MaskedScorer.token_log_probabilities`.
    """
    with TextProgress(computed_positions(encoded.rows), "masked tokens") as progress:
        scores = scorer.token_log_probabilities(encoded.rows, whole_word=whole_word, report=_report_to(progress))
        progress.finish(f"Scored {len(encoded.pairs):,} minimal pairs: {progress.texts:,} masked tokens")
    sums = np.array([of_row.sum(dtype=np.float64) for of_row in scores])
    unknown = np.array([scorer.vocabulary.unk_id in row for row in encoded.rows])
    with_unknown = int(np.count_nonzero(unknown[encoded.good] | unknown[encoded.bad]))
    equal = int(np.count_nonzero(encoded.good == encoded.bad))
    most = _MOST_PAIRS * len(encoded.pairs)
    if with_unknown > most:
        sentences = (sentence for pair in encoded.pairs for sentence in (pair.good, pair.bad))
        end = example_and_remedy(sentences, tokenizer)
        warn(f"{with_unknown:,} of {len(encoded.pairs):,} pairs contain [UNK]{end}")
    if equal > most:
        warn(f"{equal:,} of {len(encoded.pairs):,} pairs have the same tokens in both sentences, and count as wrong")
    return PairResults(
        all_pairs, equal, with_unknown, pair_scores(encoded.pairs, sums[encoded.good], sums[encoded.bad])
    )


def evaluate_text(scorer: MaskedScorer, all_windows: Windows, max_tokens: int | None, whole_word: bool) -> TextResults:
    """Return the results on text.

    Args:
        scorer: scorer of the model.
        all_windows: at least one window.
        max_tokens: as for `sample_windows`.
        whole_word: as for `MaskedScorer.token_log_probabilities`; it does not affect masked-LM loss and accuracy.
    """
    windows = sample_windows(all_windows, max_tokens)
    positions = sum(map(len, windows.rows)) + computed_positions(windows.rows)
    with TextProgress(positions, "masked tokens") as progress:
        report = _report_to(progress)
        masked_lm = masked_lm_scores(scorer, windows, report)
        loss = pseudo_log_likelihood(scorer, windows, whole_word=whole_word, report=report)
        progress.finish(f"Scored {windows.tokens:,} tokens of text: {progress.texts:,} masked tokens")
    unknown = windows.occurrences(scorer.vocabulary.unk_id)
    return TextResults(
        int(windows.counts.sum()), windows.tokens, all_windows.tokens, unknown, masked_lm, negative_log_likelihood=loss
    )


def _report_to(progress: TextProgress) -> Report:
    """Return a function that adds scored tokens and computed positions to a progress line."""
    total = 0

    def report(tokens: int, positions: int) -> None:
        nonlocal total
        total += positions
        progress.add(tokens, total)

    return report
