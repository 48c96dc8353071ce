"""The coverage of a text by a vocabulary."""

import dataclasses
from collections.abc import Container, Mapping

from tokenizer.wordpiece import UNKNOWN, split_word


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Counts of how the running words of a text are spelled; coverages of parts of a text add up.

    Attributes:
        words: number of running words.
        unknown: those that are "[UNK]".
        whole_words: those that are one token of the vocabulary.
        tokens: number of tokens of all words, one for each "[UNK]".
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
            f"{self.tokens / words:.4f} tokens a word, {self.whole_words / words:.2%} of words one token, "
            f"{self.unknown / words:.3%} [UNK]"
        )


def coverage(word_counts: Mapping[str, int], pieces: Container[str]) -> Coverage:
    """Spell counted words with a vocabulary's tokens (its dictionary of ids) and count the outcome."""
    words = unknown = whole = spelled = 0
    for word, count in word_counts.items():
        spelling = split_word(word, pieces)
        words += count
        spelled += count * len(spelling)
        if spelling == [UNKNOWN]:
            unknown += count
        elif len(spelling) == 1:
            whole += count
    return Coverage(words, unknown, whole, spelled)
