"""Warnings about words that become "[UNK]" because of --alphabet_limit."""

from collections.abc import Mapping
from typing import Any

# Share of running words above which to warn, and the share of all [UNK] above which the limit counts as their cause.
_MANY = 0.01
_CAUSE = 0.5


def alphabet_warnings(vocab: Mapping[str, Any], limit: int, unknown: float | None = None) -> list[str]:
    """Return a line where the limit of the alphabet is why words are "[UNK]".

    Args:
        vocab: of corpus.json; manifests of older versions have no alphabet counts.
        limit: the alphabet_limit that it was learned with.
        unknown: share of the tokens that are "[UNK]"; None to judge by the training text alone.
    """
    learned_from, alphabet = vocab.get("learned_from"), vocab.get("alphabet")
    if not alphabet or not learned_from or not learned_from["words"]:
        return []
    outside = alphabet["words_excluded"] / learned_from["words"]
    if outside <= max(_MANY, _CAUSE * unknown if unknown is not None else 0.0):
        return []
    return [
        f"{outside:.1%} of the words are [UNK] because --alphabet_limit {limit} leaves out "
        f"{alphabet['characters_excluded']:,} of the text's {alphabet['characters']:,} characters; learn it again "
        f"with --alphabet_limit {alphabet['sufficient_limit']} and a --vocab_size that holds them."
    ]
