"""Test greedy longest-match-first tokenization against the published loop."""

from hypothesis import given
from hypothesis import strategies as st

from beambert.tokenizer.wordpiece import split_word
from tests.tokenizer.reference_tokenizer import published_pieces

TOKENS = st.sets(st.text("abc", min_size=1, max_size=3))


def test_word_of_200_characters_is_the_longest() -> None:
    pieces = {"a": 0, "##a": 1}
    assert split_word("a" * 200, pieces) == ["a"] + ["##a"] * 199
    assert split_word("a" * 201, pieces) == ["[UNK]"]
    assert split_word("a" * 201, {"a" * 201: 0}) == ["[UNK]"]


@given(word=st.text("abc", min_size=1, max_size=7), starts=TOKENS, continuations=TOKENS)
def test_any_word_against_the_published_loop(word: str, starts: set[str], continuations: set[str]) -> None:
    pieces = starts | {"##" + piece for piece in continuations}
    expected = published_pieces(word, pieces)
    assert split_word(word, pieces) == split_word(word, pieces, longest_token=3) == expected
