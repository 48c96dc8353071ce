"""Document rules: the quality filters that reject whole documents, and the ratios they use."""

from collections.abc import Callable, Sequence

import numpy as np

from beambert.pipelines.cleaning.ngrams import count_words, ngram_keys, word_keys, word_spans
from beambert.pipelines.cleaning.rules import (
    DIGITS,
    NO_TEXT,
    NON_LETTERS,
    REPEATED_LINES,
    REPEATED_NGRAMS,
    SYMBOLS,
    TOO_SHORT,
    CleaningOptions,
)

# Ratios of shorter texts are meaningless: "Wait ..." is half symbols.
_MIN_WORDS = 20


def rejection_reason(sentences: Sequence[str], options: CleaningOptions) -> str | None:
    """Return the rule that rejects a document, or None.

    The rules `DUPLICATE`, `LANGUAGE` and `CONTAMINATED` are applied elsewhere.
    """
    if not sentences:
        return NO_TEXT
    text = "\n".join(sentences)
    data = text.encode("utf-8")
    spans = word_spans(data)
    words = len(spans[0])
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        (TOO_SHORT, lambda: _is_too_short(sentences, words, text, options)),
        (SYMBOLS, lambda: words >= _MIN_WORDS and symbol_ratio(text, words) > options.max_symbol_ratio),
        (DIGITS, lambda: words >= _MIN_WORDS and digit_ratio(data) > options.max_digit_ratio),
        (NON_LETTERS, lambda: words >= _MIN_WORDS and non_letter_ratio(data, words) > options.max_non_letter_ratio),
        (REPEATED_LINES, lambda: repeated_line_ratio(sentences) > options.max_repeated_lines),
        (REPEATED_NGRAMS, lambda: repeated_ngram_ratio(data, spans) > options.max_repeated_ngrams),
    )
    return next((name for name, fails in tests if options.runs(name) and fails()), None)


def _is_too_short(sentences: Sequence[str], words: int, text: str, options: CleaningOptions) -> bool:
    return len(sentences) < options.min_sentences or words < options.min_words or len(text) < options.min_characters


def symbol_ratio(text: str, words: int) -> float:
    """Return the number of hash signs and ellipses (three dots or one character) per word.

    Args:
        text: a text.
        words: number of its words.
    """
    return (text.count("#") + text.count("...") + text.count("…")) / words if words else 0.0


_DIGITS = b"0123456789"
_BLANKS = b" \t\r\n\x0b\x0c"
_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1)) + bytes(range(128, 256))
_NO_LETTERS = bytes(byte for byte in range(33, 256) if byte not in _LETTERS)


def digit_ratio(data: bytes) -> float:
    """Return the fraction of ASCII digits among the bytes of a UTF-8 text, whitespace excluded."""
    data = data.translate(None, _BLANKS)
    return 1 - len(data.translate(None, _DIGITS)) / len(data) if data else 0.0


def non_letter_ratio(data: bytes, words: int) -> float:
    """Return the fraction of words without a letter; non-ASCII characters count as letters.

    Args:
        data: a text in UTF-8.
        words: number of its words.
    """
    return 1 - count_words(data.translate(None, _NO_LETTERS)) / words if words else 0.0


def repeated_line_ratio(sentences: Sequence[str]) -> float:
    """Return the fraction of characters in sentences that repeat an earlier sentence of the document.

    Characters are counted instead of sentences: in a play, every speaker's name is a repeated sentence.
    """
    total = sum(map(len, sentences))
    return 1 - sum(map(len, set(sentences))) / total if total else 0.0


_NGRAM = 10
_MIN_WORDS_FOR_NGRAMS = 100


def repeated_ngram_ratio(data: bytes, spans: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the fraction of word bytes in 10-grams that occur more than once; 0 for fewer than 100 words.

    Args:
        data: a text in UTF-8.
        spans: starts and lengths of its words, from `word_spans`.
    """
    starts, lengths = spans
    if len(starts) < _MIN_WORDS_FOR_NGRAMS:
        return 0.0
    keys = ngram_keys(word_keys(data, starts, lengths), _NGRAM)
    ordered = np.sort(keys)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return 0.0
    repeated = np.isin(keys, twice)  # [W - 9]
    inside = np.convolve(repeated, np.ones(_NGRAM, np.int64)) > 0  # [W]
    return float(lengths[inside].sum() / lengths.sum())
