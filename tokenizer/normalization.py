"""Split text into words by the rules of `BasicTokenizer` in google-research/bert, tokenization.py, last release.

As in the released code, character properties are those of the running Python's Unicode database; see
`CHARACTER_RULES`.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence

from beambert.common.word_rules import WordRules

# Identifies the character rules of this Python: with equal values, every text has the same words. Python 3.11
# (Unicode 14.0) and 3.12 (15.0) differ in 66 characters uncased and 30 cased, all rare and unassigned in 14.0. 3.12 and
# 3.13 (15.1) agree. Builds record the value and reject workers with a different one
# (`beambert.pipelines.io.versions.require_same_rules`).
_AGREEING = {"15.1.0": "15.0.0"}
CHARACTER_RULES = f"Unicode {_AGREEING.get(unicodedata.unidata_version, unicodedata.unidata_version)}"

# First and last code point of each block of CJK ideographs. Hangul, Hiragana and Katakana are not included, because
# they are tokenized as words.
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
    """Return whether a character is a tab, newline, carriage return or of the Unicode category Zs (spaces)."""
    return character in "\t\n\r" or unicodedata.category(character) == "Zs"


def is_control(character: str) -> bool:
    """Return whether a character is of the category Cc or Cf, except tab, newline and carriage return (whitespace).

    The last released code lists these two categories. Its first version included every category that starts with C,
    and so removed private-use (Co) and unassigned (Cn) characters, which are kept here.
    """
    return character not in "\t\n\r" and unicodedata.category(character) in ("Cc", "Cf")


def is_cjk(character: str) -> bool:
    """Return whether a character is an ideograph of the eight blocks in `CJK_RANGES`."""
    return any(first <= ord(character) <= last for first, last in CJK_RANGES)


def is_punctuation(character: str) -> bool:
    """Return whether a character is of a category P* or printable ASCII other than letters, digits and space."""
    return unicodedata.category(character).startswith("P") or (
        "!" <= character <= "~" and not (character.isalpha() or character.isdigit())
    )


def _clean(character: str) -> str:
    if character in "\0\ufffd" or is_control(character):
        return ""
    return " " if is_whitespace(character) else character


def _clean_and_space_cjk(character: str) -> str:
    return f" {character} " if is_cjk(character) else _clean(character)


def _strip_accent(character: str) -> str:
    return "" if unicodedata.category(character) == "Mn" else character


def _space_punctuation(character: str) -> str:
    return f" {character} " if is_punctuation(character) else character


class _Replacements(dict[int, str]):
    """A table for `str.translate` that applies a rule to each character once and caches the result."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self.rule = rule

    def __missing__(self, code_point: int) -> str:
        replacement = self[code_point] = self.rule(chr(code_point))
        return replacement


# By tokenize_chinese_chars.
_CLEANED = {True: _Replacements(_clean_and_space_cjk), False: _Replacements(_clean)}
_WITHOUT_ACCENTS = _Replacements(_strip_accent)
_WITH_SPACED_PUNCTUATION = _Replacements(_space_punctuation)


def split_words(text: str, rules: WordRules) -> list[str]:
    """Split a text into words; each punctuation character and each ideograph is a word.

    Implements `BasicTokenizer.tokenize`: remove U+0000, U+FFFD and control characters, replace whitespace by spaces,
    and separate ideographs. In uncased text, lower-case, decompose (NFD) and strip accents (category Mn). Then separate
    punctuation and split at whitespace.

    The released code splits before it lower-cases. Processing the whole text at once gives the same words, because
    lower-casing (final sigma) and NFD (order of accents) never depend on characters beyond a space.

    Args:
        text: The text.
        rules: Which of these steps apply. Text is decomposed only if accents are stripped.
    """
    return normalize(text, rules).translate(_WITH_SPACED_PUNCTUATION).split()


def normalize(text: str, rules: WordRules) -> str:
    """Return a text as `split_words` changes it, before punctuation is separated and the text is split."""
    text = text.translate(_CLEANED[rules.tokenize_chinese_chars])
    if rules.do_lower_case:
        text = text.lower()
    if rules.strips_accents:
        text = unicodedata.normalize("NFD", text).translate(_WITHOUT_ACCENTS)
    return text


def replace_character(code_point: int, rules: WordRules) -> tuple[str | None, bool]:
    """Return the context-independent replacement of one character, including spaces that separate it.

    For text without context-dependent characters, `split_words` equals joining the replacements and splitting at
    whitespace.

    Args:
        code_point: The character.
        rules: As for `split_words`.

    Returns:
        (replacement, whether the character is an accent, which `split_words` removes). The replacement is `None` if it
        depends on the context: for the capital sigma, whose lower case differs at the end of a word, and for the few
        combining marks other than accents, which NFD may reorder.
    """
    cleaned = _CLEANED[rules.tokenize_chinese_chars][code_point]
    if rules.do_lower_case and cleaned == "\u03a3":
        return None, False
    replacement = cleaned.lower() if rules.do_lower_case else cleaned
    if rules.strips_accents:
        replacement = unicodedata.normalize("NFD", replacement).translate(_WITHOUT_ACCENTS)
        if any(unicodedata.combining(character) for character in replacement):
            return None, False
    return replacement.translate(_WITH_SPACED_PUNCTUATION), bool(cleaned) and not replacement


def normalize_with_sources(text: str, rules: WordRules) -> tuple[str, Sequence[int]]:
    """Return the result of `normalize`, and the index in the text of the source of every character."""
    if text.isascii() and text.isprintable():
        return normalize(text, rules), range(len(text))
    replacements = _CLEANED[rules.tokenize_chinese_chars]
    pairs = [(result, i) for i, character in enumerate(text) for result in replacements[ord(character)]]
    if rules.do_lower_case:
        pairs = _lower(pairs)
    if rules.strips_accents:
        pairs = _strip_accents(pairs)
    return "".join(character for character, _ in pairs), [source for _, source in pairs]


def split_words_with_sources(text: str, rules: WordRules) -> list[tuple[str, list[int]]]:
    """Return the words of `split_words`, each with the index in the text of the source of every character."""
    normal, sources = normalize_with_sources(text, rules)
    words: list[tuple[str, list[int]]] = []
    spaced = [
        (result, source)
        for character, source in zip(normal, sources, strict=True)
        for result in _WITH_SPACED_PUNCTUATION[ord(character)]
    ]
    for is_space, letters in itertools.groupby(spaced, key=lambda pair: pair[0].isspace()):
        if not is_space:
            characters, places = zip(*letters, strict=True)
            words.append(("".join(characters), list(places)))
    return words


def _lower(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return (character, source) pairs lower-cased."""
    # The lower case of a sigma depends on its neighbors, but the length of a lower-cased character does not.
    lowered = "".join(character for character, _ in pairs).lower()
    sources = [i for character, i in pairs for _ in character.lower()]
    return list(zip(lowered, sources, strict=True))


def _strip_accents(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return (character, source) pairs in NFD and without accents."""
    decomposed = [(result, i) for character, i in pairs for result in unicodedata.normalize("NFD", character)]
    # NFD sorts each run of combining characters by class.
    ordered: list[tuple[str, int]] = []
    for is_combining, run in itertools.groupby(decomposed, key=lambda pair: unicodedata.combining(pair[0]) > 0):
        characters = list(run)
        if is_combining:
            characters.sort(key=lambda pair: unicodedata.combining(pair[0]))
        ordered += characters
    return [(character, i) for character, i in ordered if _WITHOUT_ACCENTS[ord(character)]]


# Whitespace to `str.split`, but control characters to the rules, which remove them and join their neighbors.
_SPLITTING_CONTROLS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_SPLITTING_CONTROL = re.compile(f"[{_SPLITTING_CONTROLS}]")
_CJK = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK_RANGES) + "]")


def prepare_chunks(texts: Sequence[str], tokenize_chinese_chars: bool = True) -> Sequence[str]:
    """Return texts with the same words that can be split chunk by chunk, a chunk being a `str.split` part.

    For every text, `[word for chunk in prepare_chunks([text])[0].split() for word in split_words(chunk, rules)]` equals
    `split_words(text, rules)`. Chunks repeat often, so caching the words of each chunk makes splitting almost as fast
    as `str.split`. Each ideograph becomes a chunk, so that caching also helps in text without spaces.

    Args:
        texts: The texts.
        tokenize_chinese_chars: Whether each ideograph is a word, as in the rules.
    """
    joined = "".join(texts)
    if any(control in joined for control in _SPLITTING_CONTROLS):
        texts = [_SPLITTING_CONTROL.sub("", text) for text in texts]
    if tokenize_chinese_chars and not joined.isascii():
        texts = [text if text.isascii() else _CJK.sub(r" \g<0> ", text) for text in texts]
    return texts
