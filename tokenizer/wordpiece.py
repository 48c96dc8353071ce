"""Split words into tokens by the rule of `WordpieceTokenizer` in google-research/bert, tokenization.py.

`coverage` counts the tokens of all words of a text.
"""

import dataclasses
from collections.abc import Container, Mapping

UNKNOWN = "[UNK]"
CONTINUATION = "##"
MAX_WORD_CHARACTERS = 200


def split_word(
    word: str, tokens: Container[str], longest_token: int = MAX_WORD_CHARACTERS, *, continues: bool = False
) -> list[str]:
    """Split one word into tokens, greedily longest match first.

    Args:
        word: A word from `beambert.tokenizer.normalization.split_words`.
        tokens: The tokens of the vocabulary, such as `Vocabulary.ids`. Tokens that continue a word start with "##".
        longest_token: Length in characters of the longest token; a tight bound saves time.
        continues: Whether the word is the rest of a longer one, so that its first token starts with "##" too.

    Returns:
        The tokens, or ["[UNK]"] if the word has more than 200 characters or does not match.
    """
    if len(word) > MAX_WORD_CHARACTERS:
        return [UNKNOWN]
    spelling = []
    start = 0
    while start < len(word):
        prefix = CONTINUATION if start or continues else ""
        for end in range(min(len(word), start + longest_token), start, -1):
            token = prefix + word[start:end]
            if token in tokens:
                break
        else:
            return [UNKNOWN]
        spelling.append(token)
        start = end
    return spelling


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
