"""Measure how a vocabulary covers a text."""

import dataclasses
from collections.abc import Container, Mapping

from beambert.tokenizer.wordpiece import UNKNOWN, split_word


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Counts of how a vocabulary tokenizes the running words of a text; instances can be added.

    Attributes:
        words: running words.
        unknown: words that become "[UNK]".
        whole_words: words that are a single token.
        tokens: tokens of all words; "[UNK]" counts as one.
    """

    words: int = 0
    unknown: int = 0
    whole_words: int = 0
    tokens: int = 0

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    def __str__(self) -> str:
        words = max(self.words, 1)
        return (
            f"{self.tokens / words:.4f} tokens per word, {self.whole_words / words:.1%} are one token, "
            f"{self.unknown / words:.3%} [UNK]"
        )


def coverage(word_counts: Mapping[str, int], tokens: Container[str]) -> Coverage:
    """Tokenize counted words and return the totals.

    Args:
        word_counts: occurrences of each word.
        tokens: the tokens of the vocabulary, such as `Vocabulary.ids`.
    """
    words = unknown = whole_words = num_tokens = 0
    for word, count in word_counts.items():
        word_tokens = split_word(word, tokens)
        words += count
        num_tokens += count * len(word_tokens)
        if word_tokens == [UNKNOWN]:
            unknown += count
        elif len(word_tokens) == 1:
            whole_words += count
    return Coverage(words, unknown, whole_words, num_tokens)
