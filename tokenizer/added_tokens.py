"""Find the tokens in a text that are kept whole, as `AddedVocabulary` of Hugging Face's `tokenizers` does."""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import normalize, normalize_with_sources, replace_character

# Unicode categories of the characters of words, besides all letters (L) and marks (M).
_WORD_CATEGORIES = ("Nd", "Nl", "Pc")
_JOINERS = "\u200c\u200d"


class Match(NamedTuple):
    """An occurrence of a token in a text: `text[start:end]`."""

    start: int
    end: int
    token: str


class AddedTokenFinder:
    """Find tokens in texts.

    Tokens that are not normalized are sought first, then the others in the normalized text between them. At each
    position the longest token is found.

    Args:
        tokens: The tokens.
        rules: Word rules, of which normalization applies all but the separation of punctuation.
    """

    def __init__(self, tokens: Sequence[AddedToken], rules: WordRules) -> None:
        self._rules = rules
        self._exact = _Pattern({token.content: token for token in tokens if not token.normalized})
        # The first of several tokens with the same normalized text; `tokenizers` finds a random one.
        normalized = (token for token in reversed(tokens) if token.normalized)
        by_text = {normalize(token.content, rules): token for token in normalized}
        self._normalized = _Pattern({text: token for text, token in by_text.items() if text})

    def find(self, text: str) -> list[Match]:
        """Return the occurrences of the tokens in a text, without overlaps, in the order of the text."""
        found = list(self._exact.find(text))
        if not self._normalized.tokens:
            return found
        ends = [0, *(match.end for match in found)]
        starts = [*(match.start for match in found), len(text)]
        between = (self._find_normalized(text, *gap) for gap in zip(ends, starts, strict=True))
        return sorted(itertools.chain(found, *between))

    def _find_normalized(self, text: str, start: int, end: int) -> Iterator[Match]:
        """Yield the occurrences of normalized tokens in a part of a text."""
        part = text[start:end]
        matches = list(self._normalized.find(normalize(part, self._rules)))
        if not matches:
            return
        _, sources = normalize_with_sources(part, self._rules)
        for match in matches:
            low, high = match.start, match.end
            # Of a character that becomes several, such as an ideograph with spaces, a token has all or none.
            while 0 < low < high and sources[low - 1] == sources[low]:
                low += 1
            while low < high < len(sources) and sources[high - 1] == sources[high]:
                high -= 1
            covered = sources[low:high]
            if not covered:
                continue
            first, after = min(covered), max(covered) + 1
            # Accents after the last character are part of it.
            while after < len(part) and replace_character(ord(part[after]), self._rules)[1]:
                after += 1
            yield Match(start + first, start + after, match.token)


class _Pattern:
    """A regular expression that matches the longest of several texts, each of which stands for a token."""

    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self.tokens = tokens
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))

    def find(self, text: str) -> Iterator[Match]:
        """Yield the occurrences; a text that must be a word of its own and is not does not occur, nor one inside it."""
        for match in self._pattern.finditer(text) if self.tokens else ():
            token = self.tokens[match[0]]
            start, end = match.span()
            inside_word = (start > 0 and _is_of_word(text[start - 1])) or (end < len(text) and _is_of_word(text[end]))
            if not (token.single_word and inside_word):
                yield Match(start, end, token.content)


def _is_of_word(character: str) -> bool:
    """Return whether a character matches \\w of the regular expressions of Rust."""
    category = unicodedata.category(character)
    return category[0] in "LM" or category in _WORD_CATEGORIES or character in _JOINERS
