"""Test greedy longest-match-first tokenization with the cases of google-research/bert's tokenization_test.py."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.wordpiece import split_word

PIECES = dict.fromkeys(["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing"])


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("unwanted", ["un", "##want", "##ed"]),
        ("running", ["runn", "##ing"]),
        ("unwantedX", ["[UNK]"]),
        ("ed", ["[UNK]"]),
        ("wanted", ["want", "##ed"]),
        # "wa" must not be used where "want" matches, nor tried after the rest of "want" does not match.
        ("wantx", ["[UNK]"]),
    ],
)
def test_released_cases(word: str, pieces: list[str]) -> None:
    assert split_word(word, PIECES) == pieces


def test_greedy_does_not_backtrack() -> None:
    assert split_word("abc", {"ab": 0, "a": 1, "##bc": 2}) == ["[UNK]"]


def test_word_of_200_characters_is_the_longest() -> None:
    pieces = {"a": 0, "##a": 1}
    assert split_word("a" * 200, pieces) == ["a"] + ["##a"] * 199
    assert split_word("a" * 201, pieces) == ["[UNK]"]
    assert split_word("a" * 201, {"a" * 201: 0}) == ["[UNK]"]


@given(
    word=st.text("abc", min_size=1, max_size=7), starts=st.sets(st.text("abc", min_size=1, max_size=3)), data=st.data()
)
def test_against_all_spellings(word: str, starts: set[str], data: st.DataObject) -> None:
    """Check that of all splits of a word, the greedy one, if any, has the lexicographically largest token lengths."""
    continuations = data.draw(st.sets(st.text("abc", min_size=1, max_size=3)))
    pieces = starts | {"##" + piece for piece in continuations}
    spellings = []
    for count in range(len(word)):
        for cuts in combinations(range(1, len(word)), count):
            bounds = [0, *cuts, len(word)]
            parts = [word[bounds[i] : bounds[i + 1]] for i in range(count + 1)]
            spelling = [parts[0], *("##" + part for part in parts[1:])]
            if all(piece in pieces for piece in spelling):
                spellings.append(spelling)
    found = split_word(word, pieces, longest_token=3)
    assert found == split_word(word, pieces)
    if found == ["[UNK]"]:
        # The longest match failed somewhere: no split uses the longest token at every position.
        for spelling in spellings:
            assert not _is_greedy(spelling, pieces)
    else:
        assert found in spellings
        assert found == max(spellings, key=lambda spelling: [len(piece.removeprefix("##")) for piece in spelling])


def _is_greedy(spelling: list[str], pieces: set[str]) -> bool:
    rest = "".join(piece.removeprefix("##") for piece in spelling)
    for number, piece in enumerate(spelling):
        prefix = "##" if number else ""
        matching = [candidate for candidate in pieces if candidate.startswith("##") == bool(number)]
        if piece != max((c for c in matching if (prefix + rest).startswith(c)), key=len):
            return False
        rest = rest[len(piece.removeprefix("##")) :]
    return True
