"""Test that the comparison finds exactly the characters that another tokenizer treats differently."""

import numpy as np
import pytest

from beambert.common.word_rules import WordRules
from beambert.tokenizer.differences import Encode, character_vocabulary, find_differences
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

# NFD swaps the two marks, which have the combining classes 224 and 216.
MARKS = "\u302e\U0001d165"
# No token starts with the sharp s or contains U+1E9E.
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "gro\u00df", "s", "\u00e4x", *MARKS, "c d"))


def encoder(vocabulary: Vocabulary) -> Encode:
    """Return the exact tokenizer with different rules for some characters."""
    exact = Tokenizer(vocabulary, False)

    def encode(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        changed = []
        for text in texts:
            # Changes everywhere, inside a word, of doubled characters, of a token with a space, at the end of a text.
            text = text.replace("\u00df", "ss").replace("a\u1234a", "a \u1234a").replace("++", "s")
            text = text.replace("a\ue000a", "aa").replace("c d", "s")
            changed.append(text.removesuffix("ax") + "as" if text.endswith("ax") else text)
        return exact.encode_batch(changed)

    return encode


@pytest.mark.slow
def test_changed_characters_are_found() -> None:
    found = find_differences(VOCABULARY, WordRules(do_lower_case=False), encoder)
    assert found.code_points == (ord("+"), ord("x"), 0xDF, 0x1234, 0xE000)
    assert found.num_assigned == 4
    assert found.in_vocabulary == (ord("x"), 0xDF)
    assert found.tokens == ("c d",)
    # Cased text is not converted to NFD.
    assert (found.num_mark_pairs, found.mark_pairs) == (0, ())


@pytest.mark.slow
def test_changed_pairs_of_marks_are_found() -> None:
    found = find_differences(VOCABULARY, WordRules(), lambda vocabulary: lowered(vocabulary))
    assert found.code_points == found.tokens == ()
    assert found.mark_pairs == ((ord(MARKS[0]), ord(MARKS[1])),)
    assert found.num_mark_pairs > 500


def lowered(vocabulary: Vocabulary) -> Encode:
    exact = Tokenizer(vocabulary, True)
    return lambda texts: exact.encode_batch([text.replace(MARKS, "s") for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
def test_equal_tokenizers_have_no_differences(do_lower_case: bool) -> None:
    found = find_differences(
        VOCABULARY, WordRules(do_lower_case), lambda v: Tokenizer(v, do_lower_case, compiled=True).encode_batch
    )
    assert (found.code_points, found.num_assigned, found.in_vocabulary) == ((), 0, ())
    assert (found.mark_pairs, found.tokens) == ((), ())


def test_the_vocabulary_of_characters() -> None:
    characters = character_vocabulary(Vocabulary((*SPECIAL_TOKENS, "b\u00df", "##c", "\u2028d", "e f")))
    assert characters.tokens[len(SPECIAL_TOKENS) :][:3] == ("#", "A", "C")
    assert {"a", "##a", "##\u00df", "\u00df", "[", "##f"} <= set(characters.tokens)
    # White space is in no word, so the vocabulary does not contain it.
    assert not {" ", "## ", "\u2028"} & set(characters.tokens)
