"""The words and the ids of every character, of generated and of real text, against the published rules spelt out."""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer import normalization
from tokenizer.normalization import split_words
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

CASES = pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])


def published_words(text: str, do_lower_case: bool) -> list[str]:
    """BasicTokenizer step by step, a character at a time, sharing nothing with the code under test."""
    cleaned = ""
    for character in text:
        category = unicodedata.category(character)
        if character in (" ", "\t", "\n", "\r") or category == "Zs":
            cleaned += " "
        elif category in ("Cc", "Cf") or character in ("\x00", "\ufffd"):
            pass
        elif (
            "\u4e00" <= character <= "\u9fff"
            or "\u3400" <= character <= "\u4dbf"
            or "\uf900" <= character <= "\ufaff"
            or "\U00020000" <= character <= "\U0002a6df"
            or "\U0002a700" <= character <= "\U0002ceaf"
            or "\U0002f800" <= character <= "\U0002fa1f"
        ):
            cleaned += " " + character + " "
        else:
            cleaned += character
    spaced = ""
    for token in cleaned.split():
        if do_lower_case:
            decomposed = unicodedata.normalize("NFD", token.lower())
            token = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        for character in token:
            mark = unicodedata.category(character)[0] == "P" or character in "$+<=>^`|~"
            spaced += " " + character + " " if mark else character
        spaced += " "
    return spaced.split()


def assert_same_words_and_ids(texts: list[str], do_lower_case: bool) -> None:
    expected = [published_words(text, do_lower_case) for text in texts]
    assert [split_words(text, do_lower_case) for text in texts] == expected
    # A vocabulary of just these words, so that an id stands for a word and none is unknown.
    words = dict.fromkeys(word for text in expected for word in text)
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    ids, row_splits = Tokenizer(vocabulary, do_lower_case).encode_batch(texts)
    assert [vocabulary.pieces[i] for i in ids] == [word for text in expected for word in text]
    assert (row_splits[1:] - row_splits[:-1]).tolist() == [len(text) for text in expected]


@pytest.fixture
def forgotten_characters() -> Iterator[None]:
    yield
    for table in (normalization._CLEANED, normalization._WITHOUT_ACCENTS, normalization._WITH_SPACED_PUNCTUATION):
        table.clear()


@CASES
@pytest.mark.usefixtures("forgotten_characters")
def test_every_unicode_scalar_value(do_lower_case: bool) -> None:
    scalars = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    assert len(scalars) == 1_112_064
    # Between letters, where removing it joins and spacing it parts, and at the start of a chunk.
    texts = [" ".join(f"a{c}b {c}1" for c in scalars[start : start + 32]) for start in range(0, len(scalars), 32)]
    for start in range(0, len(texts), 1024):
        assert_same_words_and_ids(texts[start : start + 1024], do_lower_case)


# Characters the rules treat specially, next to each other far more often than in plain random text.
REMOVED_OR_SPACE = (
    " \t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u1680\u200b\u2028\u2029\u3000\ufeff\ufffd\ue000\u0301\u0327\u0345"
)
LETTERS_AND_MARKS = (
    "aAzZ09\u0130\u03a3\u03c3\u00df\u00c9#[].,'_$^`\u2026\u037e\u1fef\u2260"
    "\u4e00\uf900\U0002a700\ud55c\u304c\u0e19\u0e31\ud800"
)
TEXT = st.text(st.one_of(st.sampled_from(REMOVED_OR_SPACE + LETTERS_AND_MARKS), st.characters()), max_size=60)


@CASES
@given(texts=st.lists(TEXT, max_size=5))
def test_generated_text(do_lower_case: bool, texts: list[str]) -> None:
    assert_same_words_and_ids(texts, do_lower_case)


@CASES
def test_real_text(do_lower_case: bool, shared_data: Path) -> None:
    german = json.loads((shared_data / "squad/xquad.de.json").read_text(encoding="utf-8"))
    texts = [paragraph["context"] for article in german["data"] for paragraph in article["paragraphs"]]
    for book in ("pg74.txt", "8isbl10.txt", "7hckb10.txt"):
        texts += (shared_data / "gutenberg" / book).read_bytes()[:200_000].decode("latin-1").split("\n\n")
    assert sum(map(len, texts)) > 500_000
    assert_same_words_and_ids(texts, do_lower_case)
