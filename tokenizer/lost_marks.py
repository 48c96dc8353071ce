"""Detect text in which lower-casing strips marks that distinguish words, and the languages concerned.

Uncased text is decomposed (NFD) and stripped of every mark of category Mn, as in google-research/bert. In French such a
mark is an accent. In Hindi, Thai and Japanese it is a vowel or the voicing of a consonant. docs/reference/languages.md
has the figures.
"""

import dataclasses
import functools
import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words

# Scripts that write vowels, tones or voicing with marks of category Mn. Uncased text loses a mark on 10 to 50 % of the
# letters, in Japanese on 4 to 9 %. Korean, Hebrew, Armenian, Georgian, Ethiopic and Chinese lose no mark.
_LANGUAGES_BY_SCRIPT = {
    "Beng": "as bn bpy",
    "Deva": "anp awa bh bho brx doi dty gom hi kok mag mai mr mwr ne new npi pi sa",
    "Gujr": "gu",
    "Guru": "pa",
    "Jpan": "ja",
    "Khmr": "km",
    "Knda": "kn tcy",
    "Laoo": "lo",
    "Mlym": "ml",
    "Mymr": "blk kjp ksw mnw my shn",
    "Orya": "or ory",
    "Sinh": "si",
    "Taml": "ta",
    "Telu": "te",
    "Thaa": "dv",
    "Thai": "th",
    "Tibt": "bo dz",
}
# Languages in Latin script in which 8 % or more of the running words become another word.
_TONES = frozenset(["nv", "vi", "yo"])
_DESTROYED = frozenset(" ".join(_LANGUAGES_BY_SCRIPT.values()).split())
_SCRIPTS = frozenset(script.lower() for script in _LANGUAGES_BY_SCRIPT) | {"hira", "kana", "cakm", "java", "bali"}
_NUM_WORDS = 20
_WORD_CHARACTERS = (2, 12)
_SAMPLE_CHARACTERS = 100_000


def default_do_lower_case(language: str) -> bool:
    """Return the default of --do_lower_case: False for languages in which marks distinguish words.

    Args:
        language: Language code such as "hi" or "pa-Arab". A script subtag has precedence over the language.
    """
    code, *subtags = re.split("[-_]", language.lower())
    script = next((tag for tag in subtags if len(tag) == 4 and tag.isalpha()), "")
    if script and code not in _TONES:
        return script not in _SCRIPTS
    return code not in _DESTROYED | _TONES


@functools.cache
def _kind(character: str) -> tuple[bool, bool]:
    """Return whether a character is a letter or a mark, and whether it loses a mark in uncased text."""
    is_letter = unicodedata.category(character)[0] in "LM"
    decomposed = unicodedata.normalize("NFD", character.lower())
    return is_letter, is_letter and any(unicodedata.category(part) == "Mn" for part in decomposed)


def loses_mark(word: str) -> bool:
    """Return whether a word loses a mark in uncased text."""
    return not word.isascii() and any(_kind(character)[1] for character in word)


@dataclasses.dataclass
class MarkCounts:
    """Counts of letters and lost marks of a text; counts of parts of a text can be merged.

    Attributes:
        letters: letters and marks.
        lost: letters that lose a mark, and marks that are stripped.
        words: frequent words that lose a mark, with their counts in a sample of the text.
    """

    letters: int = 0
    lost: int = 0
    words: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def example(self) -> str:
        """Return the most frequent word (ties: order of code points), or "" without words."""
        return min(self.words, key=lambda word: (-self.words[word], word), default="")

    @property
    def share(self) -> float:
        """Return the fraction of the letters that lose a mark."""
        return self.lost / max(self.letters, 1)

    def merge(self, other: "MarkCounts") -> None:
        """Add the counts of another text."""
        self.letters += other.letters
        self.lost += other.lost
        self.words.update(other.words)


_ASCII = bytes(range(128))


def count_marks(texts: Iterable[str]) -> MarkCounts:
    """Count the letters of texts that lose a mark. ASCII characters are counted as bytes, which is fast."""
    counts = MarkCounts()
    sampled: list[str] = []
    room = _SAMPLE_CHARACTERS
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        if not text.isascii():
            characters = Counter(data.translate(None, _ASCII).decode("utf-8", "surrogatepass"))
            kinds = [(count, *_kind(character)) for character, count in characters.items()]
            counts.letters += sum(count for count, is_letter, _ in kinds if is_letter)
            lost = sum(count for count, _, is_lost in kinds if is_lost)
            counts.lost += lost
            if lost and room > 0:
                sampled.append(text[:room])
                room -= len(text)
        # Bit 5 distinguishes lower from upper case; what precedes "a" wraps around to more than 150.
        counts.letters += int(np.count_nonzero((np.frombuffer(data, np.uint8) | 32) - ord("a") < 26))
    least, most = _WORD_CHARACTERS
    words = Counter(
        word
        for text in sampled
        for word in split_words(text, WordRules(do_lower_case=False))
        if least <= len(word) <= most and loses_mark(word)
    )
    kept = heapq.nsmallest(_NUM_WORDS, words.items(), key=lambda item: (-item[1], item[0]))
    counts.words = Counter(dict(kept))
    return counts


def is_accent(word: str) -> bool:
    """Return whether all marks that a word loses are on Latin, Greek or Cyrillic letters."""
    names = [unicodedata.name(character, "") for character in word if _kind(character)[1]]
    return all(name.startswith(("LATIN", "GREEK", "CYRILLIC", "COMBINING")) for name in names)
