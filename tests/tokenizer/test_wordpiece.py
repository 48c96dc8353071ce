"""Test greedy longest-match-first tokenization against the published loop, and its counts."""

from hypothesis import given
from hypothesis import strategies as st

from beambert.tokenizer.wordpiece import Coverage, coverage, split_word
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


def test_coverage_by_hand() -> None:
    pieces = {"[UNK]": 1, "a": 2, "b": 3, "##b": 4, "##c": 5, "ab": 6}
    counts = {"a": 10, "ab": 5, "abc": 3, "abx": 2, "a" * 201: 1}
    measured = coverage(counts, pieces)
    assert measured == Coverage(words=21, unknown=3, whole_words=15, tokens=10 + 5 + 3 * 2 + 3)
    assert str(measured) == "1.1429 tokens per word, 71.4% are one token, 14.286% [UNK]"


def test_coverage_of_parts_adds_up() -> None:
    assert Coverage(1, 2, 3, 4) + Coverage(10, 20, 30, 40) == Coverage(11, 22, 33, 44)
    assert str(Coverage()) == "0.0000 tokens per word, 0.0% are one token, 0.000% [UNK]"
