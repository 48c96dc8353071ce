import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.tokenizer.new_words import (
    AS_MANY,
    FEWER,
    MORE,
    NO_LONGER_UNKNOWN,
    NOW_UNKNOWN,
    NewWord,
    compare_tokenization,
    select_words,
    split_token,
)
from tests.tokenizer.reference_tokenizer import published_pieces

LETTERS = ["a", "b", "c", "##a", "##b", "##c"]


def slowly_selected(counts, tokens, num_words, min_count):
    """Return the words chosen by the rule of `select_words`, with all costs computed again for each word."""
    known = set(tokens)
    refused, chosen = set(), []

    def cost(word, vocabulary):
        pieces = published_pieces(word, vocabulary)
        return counts[word] * (len(word) if pieces == ["[UNK]"] else len(pieces) - 1)

    while len(chosen) < num_words:
        costs = {word: cost(word, known) for word in counts if counts[word] >= min_count and word not in refused}
        best = min((word for word in costs if costs[word] > 0), key=lambda word: (-costs[word], word), default=None)
        if best is None:
            break
        larger = known | {best}
        lost = any(published_pieces(word, larger) == ["[UNK]"] != published_pieces(word, known) for word in counts)
        if lost or sum(cost(word, larger) for word in counts) >= sum(cost(word, known) for word in counts):
            refused.add(best)
        else:
            chosen.append(best)
            known = larger
    return chosen


@settings(max_examples=150)
@given(
    counts=st.dictionaries(st.text("abcd", min_size=1, max_size=6), st.integers(1, 9), min_size=1, max_size=12),
    extra=st.lists(st.sampled_from(["ab", "##ab", "##bc", "abc", "##cc", "ca", "d"]), unique=True),
    without=st.sampled_from([None, "##a", "##c", "b"]),
    num_words=st.integers(1, 8),
    min_count=st.integers(1, 4),
)
def test_the_words_are_those_of_the_plain_rule(counts, extra, without, num_words, min_count):
    tokens = [token for token in [*LETTERS, *extra] if token != without]
    chosen = select_words(counts, tokens, num_words, min_count)
    expected = slowly_selected(counts, tokens, num_words, min_count)
    assert [word.word for word in chosen] == expected
    for word in chosen:
        assert list(word.former_tokens) == published_pieces(word.word, set(tokens))
        assert word.count == counts[word.word]
        assert published_pieces(word.word, {*tokens, *expected}) == [word.word]


def test_words_that_start_with_an_added_word_cost_less_afterwards():
    # Without updated costs, "abcab" (3 * 4) would be added before "ccc" (2 * 2).
    counts = {"abca": 9, "abcab": 3, "ccc": 2}
    assert [word.word for word in select_words(counts, LETTERS, 3)] == ["abca", "ccc", "abcab"]


def test_a_word_that_makes_another_one_unknown_is_refused():
    # With "ab" as a token, "abd" would need "##d".
    tokens = ["a", "##b", "##bd", "c", "##c"]
    counts = {"ab": 9, "abd": 1, "cc": 2}
    assert [word.word for word in select_words(counts, tokens, 5)] == ["cc", "abd"]
    assert [word.word for word in select_words(counts, tokens, 5, min_count=2)] == ["cc"]
    assert [word.word for word in select_words({"ab": 9, "cc": 2}, tokens, 5)] == ["ab", "cc"]


def test_a_word_that_was_unknown_stays_known():
    # "ab" makes "abcz" known, as "ab ##cz"; "abc" would make it unknown again.
    assert [word.word for word in select_words({"ab": 9, "abc": 5, "abcz": 1}, ["##c", "##cz"], 5, min_count=2)] == [
        "ab"
    ]


def test_a_word_that_costs_more_than_it_saves_is_refused():
    # "ab" saves 2 tokens, but "abcd" would become "ab ##c ##d" instead of "a ##bcd", and the other two words similarly.
    tokens = ["a", "##b", "##c", "##d", "##e", "##f", "##bcd", "##bce", "##bcf"]
    chosen = select_words({"ab": 2, "abcd": 1, "abce": 1, "abcf": 1}, tokens, 9)
    assert [word.word for word in chosen] == ["abcd", "abce", "abcf"]


def test_words_of_more_than_200_characters_are_left_out():
    assert select_words({"a" * 201: 9, "ab": 1}, LETTERS, 5) == [NewWord("ab", 1, ("a", "##b"))]


def test_changes_of_other_words_are_counted_by_kind():
    before = [*LETTERS, "a", "##bc", "ca", "##bb"]
    after = {*before, "ab", "cab", "cc"}
    counts = {"ab": 5, "abc": 4, "caba": 3, "ccb": 2, "abb": 7, "cabb": 6, "aa": 9}
    changes = compare_tokenization(counts, set(before), after)
    assert changes[AS_MANY] == [
        ("abb", ["a", "##bb"], ["ab", "##b"]),
        ("cabb", ["ca", "##bb"], ["cab", "##b"]),
        ("abc", ["a", "##bc"], ["ab", "##c"]),
    ]
    assert changes[FEWER] == [
        ("caba", ["ca", "##b", "##a"], ["cab", "##a"]),
        ("ccb", ["c", "##c", "##b"], ["cc", "##b"]),
    ]
    assert changes[MORE] == changes[NO_LONGER_UNKNOWN] == changes[NOW_UNKNOWN] == []
    more = compare_tokenization({"abca": 1}, {"a", "##bca", "##c", "##a"}, {"a", "ab", "##bca", "##c", "##a"})
    assert more[MORE] == [("abca", ["a", "##bca"], ["ab", "##c", "##a"])]
    known = compare_tokenization({"da": 1, "d": 1}, {"a", "##a"}, {"a", "##a", "d"})
    assert known[NO_LONGER_UNKNOWN] == [("da", ["[UNK]"], ["d", "##a"])]
    unknown = compare_tokenization({"abd": 1}, {"a", "##bd"}, {"a", "##bd", "ab"})
    assert unknown[NOW_UNKNOWN] == [("abd", ["a", "##bd"], ["[UNK]"])]


@pytest.mark.parametrize(
    ("token", "pieces"),
    [
        ("abc", ["a", "##b", "##c"]),
        ("##ab", ["##a", "##b"]),
        ("##d", ["d"]),
        ("e", ["##e"]),
        ("da", ["d", "##a"]),
        ("##ea", ["##e", "##a"]),
        ("ax", []),
        ("##", []),
        ("a" * 201, []),
    ],
)
def test_a_token_of_another_vocabulary_is_split(token, pieces):
    assert split_token(token, {*LETTERS, "d", "##e"}) == pieces
