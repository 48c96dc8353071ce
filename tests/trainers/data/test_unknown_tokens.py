"""Tests of the warning about texts whose words the vocabulary lacks."""

import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.data.text_encoding import UnknownTokens, encode_texts, example_and_remedy

LOWER = Vocabulary((*SPECIAL_TOKENS, *"abcdefg", *(f"##{letter}" for letter in "abcdefg")))
CASED = Vocabulary((*LOWER.tokens, "A"))
OTHER_MODEL = (
    "the vocabulary lacks these words; use a model for the language of the text, or add words with beambert "
    "extend-vocab"
)


def warning(tokenizer, texts):
    unknown = UnknownTokens(tokenizer)
    # In two parts, of which the first may have no [UNK].
    for part in (texts[:1], texts[1:]):
        rows, _ = encode_texts(part, None, tokenizer, 16).by_row()
        unknown.add(rows, part)
    return unknown.warning("the texts")


@pytest.mark.parametrize(
    ("vocabulary", "lower", "texts", "expected"),
    [
        (
            LOWER,
            True,
            ["a b", "\u5317\u4eac"],
            f"50.0% of the tokens of the texts are [UNK], such as '\u5317': {OTHER_MODEL}",
        ),
        (
            LOWER,
            False,
            ["a bad", "BAD a"],
            "16.7% of the tokens of the texts are [UNK], such as 'BAD': the vocabulary has no capital letters; use "
            "--do_lower_case true",
        ),
        # Capitals are not the cause: the vocabulary has some, or text is lower-cased.
        (CASED, False, ["a bad", "BAD a"], f"16.7% of the tokens of the texts are [UNK], such as 'BAD': {OTHER_MODEL}"),
        (LOWER, True, ["a bad", "XYZ a"], f"16.7% of the tokens of the texts are [UNK], such as 'XYZ': {OTHER_MODEL}"),
        (LOWER, True, ["a b " * 5, "q a b a b a b a b a b"], None),
        (LOWER, True, ["", ""], None),
    ],
)
def test_the_warning_has_share_example_and_remedy(vocabulary, lower, texts, expected):
    assert warning(Tokenizer(vocabulary, lower), texts) == expected


def test_a_long_word_is_shortened():
    assert example_and_remedy(["a", "z" * 300], Tokenizer(LOWER)).startswith(", such as 'zzzz")
    assert len(example_and_remedy(["z" * 300], Tokenizer(LOWER))) < 250
