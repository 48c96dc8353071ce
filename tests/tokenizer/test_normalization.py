"""Test hand-written cases of the published rules, most of them results of google-research/bert's BasicTokenizer."""

import hashlib

import pytest

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import (
    CHARACTER_RULES,
    is_cjk,
    prepare_chunks,
    replace_character,
    split_words,
)

UNCASED = {
    "Hello, world!": ["hello", ",", "world", "!"],
    " \tHeLLo!how  \n Are yoU?  ": ["hello", "!", "how", "are", "you", "?"],
    "H\u00e9llo": ["hello"],
    "He\u0301llo": ["hello"],
    "ah\u535a\u63a8zz": ["ah", "\u535a", "\u63a8", "zz"],
    "don't $5.00 a_b ^~`": ["don", "'", "t", "$", "5", ".", "00", "a", "_", "b", "^", "~", "`"],
    "\u00bfQu\u00e9\u2026\u201d": ["\u00bf", "que", "\u2026", "\u201d"],
    # Symbols are not punctuation, except the ASCII ones.
    "5\u20ac+2\u00a3": ["5\u20ac", "+", "2\u00a3"],
    # Removed, which joins their neighbors: NUL, replacement character, vertical tab, NEL, zero-width space, soft
    # hyphen, byte-order mark, right-to-left mark.
    "a\0b\ufffdc\x0bd\x85e\u200bf\u00adg\ufeffh\u200fi": ["abcdefghi"],
    # Whitespace: no-break, em, ideographic space; carriage return.
    "a\u00a0b\u2003c\u3000d\re": ["a", "b", "c", "d", "e"],
    # Neither control nor Zs, but split by whitespace_tokenize: line and paragraph separator.
    "a\u2028b\u2029c": ["a", "b", "c"],
    # Kept by the last release, removed by the first: private use, unassigned.
    "a\ue000b \u0378": ["a\ue000b", "\u0378"],
    # Hangul and kana are not separated; NFD decomposes Hangul, and the voicing mark of kana is stripped.
    "\ud55c\uae00": ["\u1112\u1161\u11ab\u1100\u1173\u11af"],
    "\u304c\u30ab": ["\u304b\u30ab"],
    "\u1f44\u03c7\u03bf\u03a3 \u03a3\u0391": ["\u03bf\u03c7\u03bf\u03c2", "\u03c3\u03b1"],
    "\u0130stanbul Stra\u00dfe \ufb01": ["istanbul", "stra\u00dfe", "\ufb01"],
    # NFD converts these to ASCII punctuation: Greek question mark, varia, not-equal.
    "a\u037eb\u1fefc\u2260d": ["a", ";", "b", "`", "c", "=", "d"],
    # A compatibility ideograph is separated before NFD replaces it.
    "a\uf900b": ["a", "\u8c48", "b"],
    "\u0301 \u200b": [],
    "": [],
}

CASED = {
    "H\u00e9llo, W\u00f6rld": ["H\u00e9llo", ",", "W\u00f6rld"],
    "He\u0301llo": ["He\u0301llo"],
    "\u037e\u2260": ["\u037e", "\u2260"],
    "\u535aX\u200bY": ["\u535a", "XY"],
    "[MASK]": ["[", "MASK", "]"],
}


@pytest.mark.parametrize(("text", "words"), UNCASED.items())
def test_uncased(text: str, words: list[str]) -> None:
    assert split_words(text, WordRules(do_lower_case=True)) == words


@pytest.mark.parametrize(("text", "words"), CASED.items())
def test_cased(text: str, words: list[str]) -> None:
    assert split_words(text, WordRules(do_lower_case=False)) == words


def test_cjk_blocks_end_where_the_released_code_ends_them() -> None:
    # First code point inside, and first after; three blocks from U+2A700 on follow each other without a gap.
    edges = [0x3400, 0x4DC0, 0x4E00, 0xA000, 0xF900, 0xFB00, 0x20000, 0x2A6E0, 0x2A700, 0x2CEB0, 0x2F800, 0x2FA20]
    inside = False
    for code in range(0x110000):
        inside ^= code in edges
        assert is_cjk(chr(code)) == inside, hex(code)


def test_chunks() -> None:
    texts = ["a\u535a\u63a8b", "c\x0bd\x85 e,\u2028f\u200b", "", "g\tH"]
    chunks = [["a", "\u535a", "\u63a8", "b"], ["cd", "e,", "f\u200b"], [], ["g", "H"]]
    assert [text.split() for text in prepare_chunks(texts)] == chunks


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
def test_the_name_of_the_rules_identifies_them(do_lower_case: bool) -> None:
    """Compare the replacements of all code points with those recorded from Python 3.11.7, 3.12.1 and 3.13.0."""
    recorded = {
        ("Unicode 14.0.0", True): "b2e8886e43bdf3be",
        ("Unicode 14.0.0", False): "437882233c395ce8",
        ("Unicode 15.0.0", True): "4dbbf118226b89fb",
        ("Unicode 15.0.0", False): "47ecfa38067b09e3",
    }
    lines = ["\t".join(map(str, replace_character(code, WordRules(do_lower_case)))) for code in range(0x110000)]
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
    assert digest[:16] == recorded[CHARACTER_RULES, do_lower_case]
