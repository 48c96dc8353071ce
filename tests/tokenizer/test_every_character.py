"""Test words and ids of every character, of generated and of real text against an oracle of the published rules."""

import bz2
import unicodedata
from dataclasses import asdict, astuple
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import is_cjk, split_words, split_words_with_sources
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.tokenizer.reference_tokenizer import published_pieces, published_words

RULES = {
    "uncased": WordRules(),
    "cased": WordRules(do_lower_case=False),
    "uncased, accents kept": WordRules(strip_accents=False),
    "cased, accents stripped, words of ideographs": WordRules(
        do_lower_case=False, strip_accents=True, tokenize_chinese_chars=False
    ),
}
CASES = pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())


def assert_same_words_and_ids(texts: list[str], rules: WordRules, encoders: list[bool]) -> None:
    expected = [published_words(text, *astuple(rules)) for text in texts]
    assert [split_words(text, rules) for text in texts] == expected
    # A vocabulary of exactly these words: each id is a word, and no word is unknown.
    words = dict.fromkeys(word for text in expected for word in text if len(word) <= 200)
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    flat = [word if len(word) <= 200 else "[UNK]" for text in expected for word in text]
    for compiled in encoders:
        ids, row_splits = Tokenizer(vocabulary, compiled=compiled, **asdict(rules)).encode_batch(texts)
        assert [vocabulary.tokens[i] for i in ids] == flat, compiled
        assert np.diff(row_splits).tolist() == [len(text) for text in expected], compiled


def assert_same_offsets(texts: list[str], rules: WordRules, encoders: list[bool]) -> None:
    """Check that all encoders return the same offsets, and that the slice of each token gives its word."""
    words = [word for text in texts for word in published_words(text, *astuple(rules)) if len(word) <= 200]
    vocabulary = Vocabulary(tuple(dict.fromkeys((*SPECIAL_TOKENS, *words))))
    results = []
    for compiled in encoders:
        tokenizer = Tokenizer(vocabulary, compiled=compiled, **asdict(rules))
        ids, row_splits, offsets = tokenizer.encode_batch_with_offsets(texts)
        plain_ids, plain_splits = tokenizer.encode_batch(texts)
        assert ids.tolist() == plain_ids.tolist()
        assert row_splits.tolist() == plain_splits.tolist()
        results.append(offsets)
    for offsets in results[1:]:
        assert offsets.tolist() == results[0].tolist()
    for text, (first, last) in zip(texts, pairwise(row_splits), strict=True):
        for piece_id, (start, end) in zip(ids[first:last], results[0][first:last].tolist(), strict=True):
            assert 0 <= start < end <= len(text)
            piece = vocabulary.tokens[piece_id]
            if piece == "[UNK]":
                continue
            # The final sigma depends on text beyond the slice, so it is ignored. One character may give several words.
            made = published_words(text[start:end], *astuple(rules))
            assert piece.replace("\u03c2", "\u03c3") in [word.replace("\u03c2", "\u03c3") for word in made], text


def characters_with_properties() -> list[str]:
    """Return all assigned characters except letters without case (Lo) and symbols (So), and a sample of the others.

    The sample has every eighth character with a decomposition, and every 64th of all others.
    """
    return [
        c
        for c in map(chr, range(0x110000))
        if unicodedata.category(c) not in ("Cn", "Co", "Cs", "Lo", "So")
        or (ord(c) % 64 == 0 and unicodedata.category(c) != "Cs")
        or (unicodedata.decomposition(c) and ord(c) % 8 == 0)
    ]


def assert_same_words_in_places(characters: list[str], rules: WordRules, encoders: list[bool]) -> None:
    """Check characters between letters, where removal joins them and spacing separates them, and at other places.

    Assigned characters are also at the start of a chunk, alone and doubled.
    """
    places = [f"a{c}b" if unicodedata.category(c) in ("Cn", "Co") else f"a{c}b {c}1 {c} {c}{c}" for c in characters]
    texts = [" ".join(places[start : start + 32]) for start in range(0, len(places), 32)]
    for start in range(0, len(texts), 1024):
        assert_same_words_and_ids(texts[start : start + 1024], rules, encoders)


@CASES
@pytest.mark.usefixtures("forgotten_characters")
def test_characters_with_properties(rules: WordRules, encoders: list[bool]) -> None:
    characters = characters_with_properties()
    assert len(characters) > 25_000
    assert_same_words_in_places(characters, rules, encoders)


@pytest.mark.slow
@CASES
@pytest.mark.usefixtures("forgotten_characters")
def test_every_unicode_scalar_value(rules: WordRules, encoders: list[bool]) -> None:
    scalars = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    assert len(scalars) == 1_112_064
    if rules != WordRules():
        # Unassigned and private-use characters have the same words by all rules, except in blocks of ideographs.
        scalars = [c for c in scalars if unicodedata.category(c) not in ("Cn", "Co") or is_cjk(c) or ord(c) % 64 == 0]
    assert_same_words_in_places(scalars, rules, encoders)


def assert_same_words_among_combining_ones(characters: list[str], rules: WordRules, encoders: list[bool]) -> None:
    """Put each character next to accents of three classes out of order, a tone mark (U+302E, no accent), and sigmas."""
    texts = [f"e{c}\u0301\u0327x \u302e{c}\u0345\u0f71 A\u03a3{c} {c}\u03a3\u0301" for c in characters]
    for start in range(0, len(texts), 16384):
        assert_same_words_and_ids(texts[start : start + 16384], rules, encoders)
        sample = texts[start : start + 16384 : 16]
        assert_same_offsets(sample, rules, encoders)
        for text in sample:
            words = [word for word, _ in split_words_with_sources(text, rules)]
            assert words == published_words(text, *astuple(rules))


@CASES
@pytest.mark.usefixtures("forgotten_characters")
def test_characters_among_combining_ones(rules: WordRules, encoders: list[bool]) -> None:
    characters = characters_with_properties()
    # All of them for the rules of uncased models, which need every property; a fifth for the other rules.
    characters = characters if rules == WordRules() else characters[::5]
    assert_same_words_among_combining_ones(characters, rules, encoders)


@pytest.mark.slow
@pytest.mark.usefixtures("forgotten_characters")
def test_every_character_among_combining_ones(encoders: list[bool]) -> None:
    assigned = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    assert len(assigned) > 140_000
    assert_same_words_among_combining_ones(assigned, WordRules(), encoders)


# Characters the rules treat specially, next to each other far more often than in plain random text.
REMOVED_OR_SPACE = (
    " \t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u1680\u200b\u2028\u2029\u3000\ufeff\ufffd\ue000\u0301\u0327\u0345"
)
LETTERS_AND_MARKS = (
    "aAzZ09\u0130\u03a3\u03c3\u00df\u00c9#[].,'_$^`\u2026\u037e\u1fef\u2260\u302e\u1d16d\u0344\u1f82"
    "\u4e00\uf900\U0002a700\ud55c\u304c\u0e19\u0e31\ud800"
)
TEXT = st.text(st.one_of(st.sampled_from(REMOVED_OR_SPACE + LETTERS_AND_MARKS), st.characters()), max_size=60)


@CASES
@given(texts=st.lists(TEXT, max_size=5))
def test_generated_text(rules: WordRules, encoders: list[bool], texts: list[str]) -> None:
    assert_same_words_and_ids(texts, rules, encoders)
    assert_same_offsets(texts, rules, encoders)


@CASES
def test_words_of_two_hundred_characters_and_more(rules: WordRules, encoders: list[bool]) -> None:
    texts = ["x" * 200, "x" * 201, "\u00e9" * 200, "e\u0301" * 201, "\ud55c" * 66 + "ab", "\ud55c" * 67, "\u03a3" * 201]
    assert_same_words_and_ids([*texts, " ".join(texts)], rules, encoders)
    assert_same_offsets([*texts, " ".join(texts)], rules, encoders)


@CASES
def test_real_text(rules: WordRules, encoders: list[bool], real_texts: list[str], shared_data: Path) -> None:
    texts = list(real_texts)
    # Markup, and words in a few dozen languages.
    with bz2.open(shared_data / "wiki-dump/enwiki-206-pages.xml.bz2", "rt", encoding="utf-8") as file:
        texts += [line for line in file if not line.isascii()][::4]
    texts = texts[:: 2 if rules == WordRules() else 8]
    assert sum(map(len, texts)) > 100_000
    assert_same_words_and_ids(texts, rules, encoders)
    assert_same_offsets([text[:300] for text in texts[::10]], rules, encoders)


@given(
    text=st.text(st.sampled_from("abc\u00e9\u03a3# ,"), max_size=40),
    pieces=st.sets(st.text("abe\u03c3\u03c2#,c", min_size=1, max_size=4), max_size=30),
)
def test_generated_vocabularies(encoders: list[bool], text: str, pieces: set[str]) -> None:
    # The character "#" gives tokens such as "##", "###" and "##a".
    vocabulary = Vocabulary(
        tuple(dict.fromkeys([*SPECIAL_TOKENS, *sorted(pieces), *(f"##{p}" for p in sorted(pieces))]))
    )
    known = set(vocabulary.tokens)
    expected = [piece for word in published_words(text, True) for piece in published_pieces(word, known)]
    for compiled in encoders:
        assert Tokenizer(vocabulary, compiled=compiled).tokenize(text) == expected, compiled
