"""Choose the words to mask in a batch of rows at once: whole words, and spans of words.

A word is a token and the "##" tokens after it. It never crosses [SEP] or [CLS], so neither words nor spans cross
segments, or instances of a packed row. A segment that begins with a "##" token, because its pair was truncated, begins
with a word of its own (the released code adds that token to the last word of the segment before).
"""

import dataclasses

import numpy as np

from pipelines.instances.ragged import ranges

# Span lengths in words (Joshi et al., SpanBERT, 2020, section 3.1): geometric with p = 0.2, cut off at 10 and
# renormalized, so that the mean is 3.8.
LONGEST_SPAN = 10
_WEIGHTS = 0.2 * 0.8 ** np.arange(LONGEST_SPAN)
SPAN_LENGTH_PROBABILITIES = _WEIGHTS / _WEIGHTS.sum()
_CUMULATIVE = np.cumsum(SPAN_LENGTH_PROBABILITIES)[:-1]
# Places tried for a span before it is shortened to what fits.
STARTS_TRIED = 4


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of n rows, in the order of the rows flattened.

    Attributes:
        starts: int64 [w], the place of the first token in the flattened rows.
        tokens: int64 [w], number of tokens.
        segments: int64 [w], number of the run of words without a special token between that it belongs to.
        row_starts: int64 [n + 1], where each row starts among the words.
    """

    starts: np.ndarray
    tokens: np.ndarray
    segments: np.ndarray
    row_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def words_in_row(self) -> np.ndarray:
        """Return the number of words of each row, int64 [n]."""
        return np.diff(self.row_starts)

    def positions(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of all tokens of the chosen words.

        Args:
            chosen: bool [w].

        Returns:
            int64 [t], places in the flattened rows, ascending; int64 [t], the number of the word each belongs to.
        """
        numbers = np.flatnonzero(chosen)
        tokens = self.tokens[numbers]
        return ranges(self.starts[numbers], tokens), np.repeat(numbers, tokens)


def words_of(ids: np.ndarray, maskable: np.ndarray, width: int, rows: int, continues_word: np.ndarray) -> Words:
    """Group tokens into words.

    Args:
        ids: int32 [rows * width], the flattened rows.
        maskable: int64 [m], the places that are neither special nor padding, ascending.
        width: L.
        rows: n.
        continues_word: bool [V], tokens that begin with "##".
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

    The words of a row come in random order; each is taken if it has no more tokens than are still wanted, and passed
    over otherwise.

    Args:
        words: all words of n rows.
        wanted: int64 [n], tokens to choose in each row; never exceeded.
        rng: the only source of chance.
        excluded: bool [w], words that are not to be taken; None for none.

    Returns:
        bool [w], the words taken.
    """
    remaining, left = wanted.copy(), words.words_in_row
    taken = np.zeros(len(words), bool)
    available = np.ones(len(words), bool) if excluded is None else ~excluded
    # Drawing without replacement from the words of each row: the first undrawn one takes the place of the drawn.
    undrawn = np.arange(len(words))
    next_undrawn = words.row_starts[:-1].copy()
    active = np.flatnonzero((remaining > 0) & (left > 0))
    while active.size:
        place = next_undrawn[active] + (rng.random(active.size, dtype=np.float32) * left[active]).astype(np.int64)
        word = undrawn[place]
        undrawn[place] = undrawn[next_undrawn[active]]
        next_undrawn[active] += 1
        left[active] -= 1
        fits = available[word] & (words.tokens[word] <= remaining[active])
        taken[word[fits]] = True
        remaining[active[fits]] -= words.tokens[word[fits]]
        active = active[(remaining[active] > 0) & (left[active] > 0)]
    return taken


def choose_spans(words: Words, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose spans (SpanBERT, section 3.1): runs of whole words, of geometric length, from uniformly drawn words.

    A length is drawn, at most as many words as tokens are still wanted, then a word to start from. A span that would
    reach over the end of its segment, into another span, or beyond what is wanted is tried at up to STARTS_TRIED words;
    the last time, and from then on, it is shortened to the words that fit. After four tries a wanted token, what is
    left is filled with single words as in `choose_words`, each a span of its own.

    Args:
        words: all words of n rows.
        wanted: int64 [n], tokens to choose in each row; never exceeded.
        rng: the only source of chance.

    Returns:
        int64 [w], the number of the span each word belongs to, from 0, or -1.
    """
    remaining, words_in_row = wanted.copy(), words.words_in_row
    offsets = np.arange(LONGEST_SPAN)
    # Room after the last word for a span to reach into, in no segment.
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
