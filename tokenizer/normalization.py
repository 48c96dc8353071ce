"""Text to words: the rules of `BasicTokenizer` in google-research/bert, tokenization.py, as last released.

The rules look characters up in the Unicode database of the running Python, as the released code does: see
`CHARACTER_RULES`.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence

# Names what the Unicode database of this Python makes of characters: equal names, equal words for every text. Python
# 3.11 (Unicode 14.0) differs from 3.12 (15.0) on 66 characters uncased and 30 cased, all unassigned in 14.0 and hardly
# ever met; 3.12 and 3.13 (15.1) agree. Builds record it and refuse to mix (`pipelines.io.versions.require_same_rules`).
_AGREEING = {"15.1.0": "15.0.0"}
CHARACTER_RULES = f"Unicode {_AGREEING.get(unicodedata.unidata_version, unicodedata.unidata_version)}"

# The blocks of ideographs, first and last code point. Hangul, Hiragana and Katakana are not in it: they are written as
# words.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_whitespace(character: str) -> bool:
    """Return True for tab, newline, carriage return and the Unicode category Zs (space, no-break space, ...)."""
    return character in "\t\n\r" or unicodedata.category(character) == "Zs"


def is_control(character: str) -> bool:
    """Return True for the categories Cc and Cf, without tab, newline and carriage return, which are whitespace.

    The last released code names these two categories. Its first version took every category that starts with C, so
    it also removed private-use (Co) and unassigned (Cn) characters, which are kept here.
    """
    return character not in "\t\n\r" and unicodedata.category(character) in ("Cc", "Cf")


def is_cjk(character: str) -> bool:
    """Return True for an ideograph of the eight blocks in `CJK_RANGES`."""
    return any(first <= ord(character) <= last for first, last in CJK_RANGES)


def is_punctuation(character: str) -> bool:
    """Return True for the categories P* and every printable ASCII character but letters, digits and space."""
    return unicodedata.category(character).startswith("P") or (
        "!" <= character <= "~" and not (character.isalpha() or character.isdigit())
    )


def _clean(character: str) -> str:
    if character in "\0\ufffd" or is_control(character):
        return ""
    if is_whitespace(character):
        return " "
    return f" {character} " if is_cjk(character) else character


def _strip_accent(character: str) -> str:
    return "" if unicodedata.category(character) == "Mn" else character


def _space_punctuation(character: str) -> str:
    return f" {character} " if is_punctuation(character) else character


class _Replacements(dict[int, str]):
    """A table for `str.translate`: the rule is asked once for each character met, then its answer is remembered."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self.rule = rule

    def __missing__(self, code_point: int) -> str:
        replacement = self[code_point] = self.rule(chr(code_point))
        return replacement


_CLEANED = _Replacements(_clean)
_WITHOUT_ACCENTS = _Replacements(_strip_accent)
_WITH_SPACED_PUNCTUATION = _Replacements(_space_punctuation)


def split_words(text: str, do_lower_case: bool) -> list[str]:
    """Split a text into words, each punctuation character and each ideograph being a word of its own.

    Follows `BasicTokenizer.tokenize`: remove U+0000, U+FFFD and control characters; make whitespace plain spaces; set
    ideographs apart; if do_lower_case, lower-case, decompose (NFD) and drop accents (category Mn); set punctuation
    apart; split at whitespace.

    The released code splits before it lower-cases. One pass over the whole text gives the same words, because neither
    lower-casing (final sigma) nor NFD (order of accents) looks past a space.
    """
    text = text.translate(_CLEANED)
    if do_lower_case:
        text = unicodedata.normalize("NFD", text.lower()).translate(_WITHOUT_ACCENTS)
    return text.translate(_WITH_SPACED_PUNCTUATION).split()


def replace_character(code_point: int, do_lower_case: bool) -> tuple[str | None, bool]:
    """Return the replacement of one character, spaces included, independent of its context.

    Of characters that need no neighbors, `split_words` of a text is their replacements joined and split at whitespace.

    Returns:
        (replacement, whether it is an accent, which `split_words` drops); the replacement is None if the neighbors
        decide: capital sigma, whose lower case is another at the end of a word, and the few characters that are no
        accents and yet change places in NFD.
    """
    cleaned = _CLEANED[code_point]
    replacement = cleaned
    if do_lower_case:
        decomposed = unicodedata.normalize("NFD", cleaned.lower())
        replacement = decomposed.translate(_WITHOUT_ACCENTS)
        if cleaned == "\u03a3" or any(unicodedata.combining(character) for character in replacement):
            return None, False
    return replacement.translate(_WITH_SPACED_PUNCTUATION), bool(cleaned) and not replacement


def split_words_with_sources(text: str, do_lower_case: bool) -> list[tuple[str, list[int]]]:
    """Return the words of `split_words` and, for each of their characters, the index of its source in the text."""
    cleaned = [(made, i) for i, character in enumerate(text) for made in _CLEANED[ord(character)]]
    words: list[tuple[str, list[int]]] = []
    for is_space, group in itertools.groupby(cleaned, key=lambda pair: pair[0].isspace()):
        chunk = list(group)
        if is_space:
            continue
        if do_lower_case:
            chunk = _lower_without_accents(chunk)
        spaced = [(made, i) for character, i in chunk for made in _WITH_SPACED_PUNCTUATION[ord(character)]]
        for apart, letters in itertools.groupby(spaced, key=lambda pair: pair[0] == " "):
            if not apart:
                characters, sources = zip(*letters, strict=True)
                words.append(("".join(characters), list(sources)))
    return words


def _lower_without_accents(chunk: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return lower case in NFD without accents, with the source of each character."""
    # What a final sigma becomes depends on its neighbors, but how many characters a character becomes does not.
    lowered = "".join(character for character, _ in chunk).lower()
    sources = [i for character, i in chunk for _ in character.lower()]
    decomposed = [
        (made, i)
        for character, i in zip(lowered, sources, strict=True)
        for made in unicodedata.normalize("NFD", character)
    ]
    # NFD sorts each run of combining characters by class.
    ordered: list[tuple[str, int]] = []
    for is_combining, run in itertools.groupby(decomposed, key=lambda pair: unicodedata.combining(pair[0]) > 0):
        characters = list(run)
        if is_combining:
            characters.sort(key=lambda pair: unicodedata.combining(pair[0]))
        ordered += characters
    return [(character, i) for character, i in ordered if _WITHOUT_ACCENTS[ord(character)]]


# `str.split` takes these for whitespace, but the rules remove them as control characters, joining their neighbors.
_SPLITTING_CONTROLS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_SPLITTING_CONTROL = re.compile(f"[{_SPLITTING_CONTROLS}]")
_CJK = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK_RANGES) + "]")


def prepare_chunks(texts: Sequence[str]) -> Sequence[str]:
    """Return texts of the same words whose whitespace-separated chunks can be split into words one by one.

    For every text, the words of its chunks, one chunk after the other, are the words of the text:
    `[word for chunk in prepare_chunks([text])[0].split() for word in split_words(chunk, case)]` equals
    `split_words(text, case)`. Chunks repeat so often that whoever remembers what became of each splits text hardly
    slower than `str.split`. Ideographs are made chunks of their own, so that this holds for text without spaces too.
    """
    joined = "".join(texts)
    if any(control in joined for control in _SPLITTING_CONTROLS):
        texts = [_SPLITTING_CONTROL.sub("", text) for text in texts]
    if not joined.isascii():
        texts = [text if text.isascii() else _CJK.sub(r" \g<0> ", text) for text in texts]
    return texts
