"""Create masked language model targets for batches of rows.

Implements `create_masked_lm_predictions` of google-research/bert, create_pretraining_data.py (BERT paper, section 3.1),
with two differences. A random replacement is never a special or [unused] token, which the released code also draws. If
truncation makes a segment start with a "##" token, that token starts a new word. The released code adds it to the last
word of the previous segment.

A word is a token and the "##" tokens after it. Words and spans never cross [CLS] or [SEP], and so never cross segments
or packed instances.
"""

import dataclasses
import functools

import numpy as np

from beambert.pipelines.instances.instances import Rows, ranges
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION

# Span lengths in words (Joshi et al., SpanBERT, 2020, section 3.1): geometric with p = 0.2, truncated at 10 and
# renormalized; the mean is 3.8.
LONGEST_SPAN = 10
_WEIGHTS = 0.2 * 0.8 ** np.arange(LONGEST_SPAN)
SPAN_LENGTH_PROBABILITIES = _WEIGHTS / _WEIGHTS.sum()
_CUMULATIVE = np.cumsum(SPAN_LENGTH_PROBABILITIES)[:-1]
# Start positions to try for a span before it is shortened.
STARTS_TRIED = 4


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
        words = words_of(ids, maskable, width, count, vocab.continues_word)
        if options.masking == "whole_word":
            flat, _ = words.positions(choose_words(words, wanted, rng))
            action = rng.random(len(flat), dtype=np.float32)
        else:
            span_of_word = choose_spans(words, wanted, rng)
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


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of n rows, row by row.

    Attributes:
        starts: int64 [w], index of the first token in the flattened rows.
        tokens: int64 [w], number of tokens.
        segments: int64 [w], number of the segment; special tokens separate segments.
        row_starts: int64 [n + 1], index of the first word of each row.
    """

    starts: np.ndarray
    tokens: np.ndarray
    segments: np.ndarray
    row_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def words_in_row(self) -> np.ndarray:
        """Return the number of words of each row: int64 [n]."""
        return np.diff(self.row_starts)

    def positions(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of all tokens of the chosen words.

        Args:
            chosen: bool [w].

        Returns:
            indices: int64 [t], indices in the flattened rows, ascending.
            words: int64 [t], index of the word of each token.
        """
        numbers = np.flatnonzero(chosen)
        tokens = self.tokens[numbers]
        return ranges(self.starts[numbers], tokens), np.repeat(numbers, tokens)


def words_of(ids: np.ndarray, maskable: np.ndarray, width: int, rows: int, continues_word: np.ndarray) -> Words:
    """Group tokens into words.

    Args:
        ids: int32 [rows * width], the flattened rows.
        maskable: int64 [m], indices of tokens that are neither special nor padding, ascending.
        width: length of a row.
        rows: number of rows n.
        continues_word: bool [V], True for tokens that start with "##".
    """
    begins_segment = np.diff(maskable, prepend=-2) != 1
    row_bounds = np.arange(rows + 1) * width
    first_in_row = np.searchsorted(maskable, row_bounds[:-1])
    begins_segment[first_in_row[first_in_row < len(maskable)]] = True
    first = np.flatnonzero(begins_segment | ~continues_word[ids[maskable]])
    starts = maskable[first]
    row_starts = np.searchsorted(starts, row_bounds)
    return Words(starts, np.diff(first, append=len(maskable)), np.cumsum(begins_segment[first]), row_starts)


def choose_words(
    words: Words, wanted: np.ndarray, rng: np.random.Generator, excluded: np.ndarray | None = None
) -> np.ndarray:
    """Choose whole words, as `create_masked_lm_predictions` does with do_whole_word_mask.

    Words of a row are visited in random order; a word with more tokens than still wanted is skipped.

    Args:
        words: all words of n rows.
        wanted: int64 [n], number of tokens to choose in each row; never exceeded.
        rng: random generator.
        excluded: bool [w], words that must not be chosen, or None.

    Returns:
        bool [w], the chosen words.
    """
    remaining, left = wanted.copy(), words.words_in_row
    taken = np.zeros(len(words), bool)
    available = np.ones(len(words), bool) if excluded is None else ~excluded
    # Sampling without replacement in each row: the first undrawn word moves to the position of the drawn one.
    undrawn = np.arange(len(words))
    next_undrawn = words.row_starts[:-1].copy()
    active = np.flatnonzero((remaining > 0) & (left > 0))
    while active.size:
        index = next_undrawn[active] + (rng.random(active.size, dtype=np.float32) * left[active]).astype(np.int64)
        word = undrawn[index]
        undrawn[index] = undrawn[next_undrawn[active]]
        next_undrawn[active] += 1
        left[active] -= 1
        fits = available[word] & (words.tokens[word] <= remaining[active])
        taken[word[fits]] = True
        remaining[active[fits]] -= words.tokens[word[fits]]
        active = active[(remaining[active] > 0) & (left[active] > 0)]
    return taken


def choose_spans(words: Words, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose spans of whole words with geometric lengths and uniform start words (SpanBERT, section 3.1).

    A span length in words is drawn, at most the number of tokens still wanted, then a start word. A span must not cross
    the end of its segment, overlap another span or exceed the wanted tokens. Otherwise up to STARTS_TRIED start words
    are tried; from the last of them on, the span is shortened to fit. After four tries per wanted token, the remaining
    tokens are chosen as single words, as in `choose_words`, each a span of its own.

    Args:
        words: all words of n rows.
        wanted: int64 [n], number of tokens to choose in each row; never exceeded.
        rng: random generator.

    Returns:
        int64 [w], the number of the span of each word, from 0, or -1.
    """
    remaining, words_in_row = wanted.copy(), words.words_in_row
    offsets = np.arange(LONGEST_SPAN)
    # Padding after the last word, in no segment, so that spans can be checked without bounds.
    beyond = np.zeros(LONGEST_SPAN, np.int64)
    segments = np.concatenate([words.segments, beyond - 1])
    ends = np.concatenate([words.starts + words.tokens, beyond])
    span_of_word = np.concatenate([np.full(len(words), -1), beyond])
    spans = 0
    lengths = np.minimum(_span_lengths(len(wanted), rng), wanted)
    tries = np.zeros(len(wanted), np.int64)
    active = np.flatnonzero((remaining > 0) & (words_in_row > 0))
    for _ in range(4 * int(wanted.max(initial=0))):
        if not active.size:
            break
        drawn = (rng.random(active.size, dtype=np.float32) * words_in_row[active]).astype(np.int64)
        first = words.row_starts[active] + drawn  # [a]
        reached = first[:, None] + offsets  # [a, 10]
        fits = (segments[reached] == segments[first][:, None]) & (span_of_word[reached] < 0)
        fits &= ends[reached] - words.starts[first][:, None] <= remaining[active][:, None]
        fits &= offsets < lengths[active][:, None]
        length = np.logical_and.accumulate(fits, axis=1).sum(axis=1)  # [a], in words
        tries[active] += 1
        placed = (length == lengths[active]) | ((tries[active] >= STARTS_TRIED) & (length > 0))
        first, length, row = first[placed], length[placed], active[placed]
        remaining[row] -= ends[first + length - 1] - words.starts[first]
        of_span = np.arange(len(first))
        span_of_word[ranges(first, length)] = np.repeat(spans + of_span, length)
        spans += len(first)
        tries[row] = 0
        lengths[row] = np.minimum(_span_lengths(len(row), rng), remaining[row])
        active = active[remaining[active] > 0]
    span_of_word = span_of_word[: len(words)]
    single = np.flatnonzero(choose_words(words, remaining, rng, excluded=span_of_word >= 0))
    span_of_word[single] = spans + np.arange(len(single))
    return span_of_word


def _span_lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    return np.searchsorted(_CUMULATIVE, rng.random(count), side="right") + 1
