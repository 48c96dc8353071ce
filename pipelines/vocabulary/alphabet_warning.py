"""Warn about words that become "[UNK]" because of --alphabet_limit."""

from collections.abc import Mapping
from typing import Any

# Fraction of running words above which to warn, and of all [UNK] above which the limit is considered their cause.
_WARNING_FRACTION = 0.01
_CAUSE_FRACTION = 0.5


def alphabet_warnings(vocab: Mapping[str, Any], limit: int, unknown: float | None = None) -> list[str]:
    """Return a warning if the alphabet limit causes many "[UNK]" words, else nothing.

    Args:
        vocab: "vocab" of corpus.json.
        limit: the alphabet_limit of the vocabulary.
        unknown: fraction of tokens that are "[UNK]"; None to decide by the training text alone.
    """
    learned_from, alphabet = vocab["learned_from"], vocab["alphabet"]
    if not alphabet or not learned_from or not learned_from["words"]:
        return []
    excluded = alphabet["words_excluded"] / learned_from["words"]
    if excluded <= max(_WARNING_FRACTION, _CAUSE_FRACTION * unknown if unknown is not None else 0.0):
        return []
    return [
        f"{excluded:.1%} of the words are [UNK] because --alphabet_limit {limit} excludes "
        f"{alphabet['characters_excluded']:,} of the {alphabet['characters']:,} characters of the text; learn the "
        f"vocabulary again with --alphabet_limit {alphabet['sufficient_limit']} and a sufficient --vocab_size"
    ]
