"""Test counts of letters that lose a mark against the definition, and the languages that are cased by default."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.common.word_rules import WordRules
from beambert.tokenizer.lost_marks import MarkCounts, count_marks, default_do_lower_case, loses_mark
from beambert.tokenizer.normalization import split_words


@given(st.lists(st.text(max_size=40)))
def test_counts_follow_the_definition(texts):
    counts = count_marks(texts)
    letters = [c for c in "".join(texts) if unicodedata.category(c)[0] in "LM"]
    lost = [c for c in letters if any(unicodedata.category(d) == "Mn" for d in unicodedata.normalize("NFD", c.lower()))]
    assert (counts.letters, counts.lost) == (len(letters), len(lost))


@given(st.lists(st.text(max_size=40)))
def test_counts_of_parts_add_up_in_any_order(texts):
    forward, backward = MarkCounts(), MarkCounts()
    for text in texts:
        forward.merge(count_marks([text]))
    for text in reversed(texts):
        backward.merge(count_marks([text]))
    whole = count_marks(texts)
    assert (forward.letters, forward.lost) == (backward.letters, backward.lost) == (whole.letters, whole.lost)
    assert forward.example == backward.example


@given(st.text(min_size=1, max_size=20))
def test_a_word_that_loses_no_mark_keeps_its_letters(word):
    if not loses_mark(word):
        # The word is decomposed and lower-cased, but has every letter.
        kept = "".join(split_words(word, WordRules()))
        letters = [c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c)[0] == "L"]
        assert [c for c in kept if unicodedata.category(c)[0] == "L"] == letters or "\ufffd" in word


def test_the_most_frequent_word_is_the_example():
    assert count_marks(["für für über größe. naïve"]).example == "für"
    assert count_marks(["über für"]).example == "für"
    assert count_marks(["plain text"]).example == ""


@pytest.mark.parametrize(
    ("language", "uncased"),
    [
        *((code, True) for code in ("en", "de", "fr", "el", "ru", "ar", "he", "fa", "ko", "zh", "und", "sr-Latn")),
        *((code, False) for code in ("hi", "ja", "th", "bn", "ta", "km", "my", "bo", "dv", "vi", "yo", "HI", "ja_JP")),
        # A script subtag has precedence over the language.
        ("hi-Latn", True),
        ("pa-Arab", True),
        ("sd-Deva", False),
        ("zh-Hans", True),
        ("vi-Latn", False),
    ],
)
def test_the_default_case_of_languages(language, uncased):
    assert default_do_lower_case(language) == uncased
