"""Test ids, byte offsets and whole [MASK] tokens in a TensorFlow graph against the exact tokenizer."""

import functools
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.common.word_rules import WordRules
from beambert.tokenizer.in_graph import InGraphTokenizer
from beambert.tokenizer.normalization import is_cjk, split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION
from tests.conftest import with_slow

UNCASED, CASED = WordRules(), WordRules(do_lower_case=False)
# Rules other than the released ones.
KEPT = WordRules(strip_accents=False)
STRIPPED = WordRules(do_lower_case=False, strip_accents=True)
WORDS = WordRules(strip_accents=False, tokenize_chinese_chars=False)


def cases(*fast: WordRules, slow: Sequence[WordRules]) -> pytest.MarkDecorator:
    """Return the parameter `rules` of a test."""
    return pytest.mark.parametrize("rules", with_slow([*fast, *slow], slow), ids=lambda rules: rules.summary)


# Characters that affect each other. NFD moves some of MARKS (Mc with a combining class), and decomposes COMPOSED into
# such marks.
SIGMAS = (
    "\u03a3\u03a3\u03a3\u03c3\u03c2aAb\u0391\u0130\u01c5\u02b0\u00aa'.:\u00ad\u0301\u0345\u200b\x01\u2160 -1\u4e00"
    "\u2028"
)
MARKS = "\u1734\u1b44\u302e\u302f\u0301\u0327\u0345\u0344\u0e31\u200d\U00016ff0\U0001d165\U0001d16d\U0001d16e\U000111c0"
COMPOSED = "\u00e9\u1e69\U0001d15e\U0001d160\U0001d1bf\U0001d15f"
OTHERS = (
    "zZ09#[]_,\u00df\u2026\u037e\u1fef\u2260 \t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\u1680\u2029\u3000"
    "\ufeff\ufffd\ue000\uf900\U0002a700\ud55c\uac00\u304c"
)
ALPHABET = "".join(dict.fromkeys(SIGMAS + MARKS + COMPOSED + OTHERS))
PIECES = ["ab", "abab", "##ba", "##bab", "##\u03c3\u03c2"]
TEXT = st.one_of(
    st.text(st.sampled_from(SIGMAS)),
    st.text(st.sampled_from("ab " + MARKS + COMPOSED)),
    st.text(st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=["Cs"]))),
    st.text(st.sampled_from("ab.\u0301"), min_size=195, max_size=210),
)


def vocabulary_of(characters: Sequence[str], pieces: Sequence[str] = ()) -> Vocabulary:
    """Return a vocabulary with each character as a token, at the start of a word and inside it.

    All characters have different ids.
    """
    continued = [CONTINUATION + character for character in characters]
    return Vocabulary(tuple(dict.fromkeys([*SPECIAL_TOKENS, *characters, *continued, *pieces])))


def vocabulary_of_alphabet(rules: WordRules) -> Vocabulary:
    """Return a vocabulary of nearly all characters in the words of the alphabet, and of some longer tokens."""
    characters = {c for a in ALPHABET for word in split_words(f"a{a}b", rules) for c in word}
    return vocabulary_of(sorted(characters - {*"1Z"}), PIECES)


def assert_same_ids(in_graph: InGraphTokenizer, exact: Tokenizer, texts: list[str]) -> None:
    ids, row_splits = exact.encode_batch(texts)
    found = in_graph(tf.constant(texts, tf.string))
    assert found.dtype == tf.int32
    if not np.array_equal(found.row_splits, row_splits) or not np.array_equal(found.flat_values, ids):
        for text, row in zip(texts, found, strict=True):
            assert [exact.vocabulary.tokens[i] for i in row] == exact.tokenize(text), ascii(text)
        pytest.fail("rows are equal, the whole is not")


def both(vocabulary: Vocabulary, rules: WordRules = UNCASED) -> tuple[InGraphTokenizer, Tokenizer]:
    return InGraphTokenizer(vocabulary, **asdict(rules)), Tokenizer(vocabulary, **asdict(rules))


@pytest.fixture(scope="module")
def tokenizers() -> Callable[[WordRules], tuple[InGraphTokenizer, Tokenizer]]:
    """A function from rules to both tokenizers, with a vocabulary of characters."""
    return functools.cache(lambda rules: both(vocabulary_of_alphabet(rules), rules))


# Cased text has the same graph without lower-casing and NFD.
@cases(UNCASED, slow=[CASED, KEPT, STRIPPED])
@pytest.mark.usefixtures("forgotten_characters")
def test_every_assigned_character(rules: WordRules) -> None:
    assigned = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    assert len(assigned) > 140_000
    size = len(assigned) // 2 + 1
    for part in (assigned[:size], assigned[size:]):
        text = "".join(part)
        vocabulary = vocabulary_of(sorted({*text, *unicodedata.normalize("NFD", text.lower())}))
        # Alone, doubled, between letters (removal joins them, spacing separates them), and at the start of a chunk.
        texts = [" ".join(f"{c} {c}{c} a{c}b {c}1" for c in part[at : at + 32]) for at in range(0, size, 32)]
        assert_same_ids(*both(vocabulary, rules), texts)


@cases(slow=[UNCASED, CASED])
def test_every_other_character(rules: WordRules) -> None:
    """Check that unassigned and private-use characters are letters: outside the vocabulary, their word is [UNK].

    The exact tokenizer processes only some of them here; `test_every_character.py` tests it on all.
    """
    others = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) in ("Cn", "Co")]
    ideographs = [c for c in others if is_cjk(c)]
    letters = [c for c in others if not is_cjk(c)]
    assert len(letters) > 900_000
    in_graph, exact = both(vocabulary_of([*"ab1", *ideographs, *letters[::1000]]), rules)
    some = [*ideographs, *letters[::20]]
    assert_same_ids(in_graph, exact, [" ".join(f"{c} a{c}{c}b {c}1" for c in some[at::1000]) for at in range(1000)])

    in_graph = InGraphTokenizer(vocabulary_of("ab1"), **asdict(rules))
    size = 2**18
    for start in range(0, len(letters), size):
        part = letters[start : start + size]
        found = in_graph([" ".join(f"a{c}{c}b {c}1" for c in part[at : at + 32]) for at in range(0, len(part), 32)])
        assert found.row_lengths().numpy().tolist() == [2 * len(part[at : at + 32]) for at in range(0, len(part), 32)]
        assert np.all(found.flat_values == exact.vocabulary.unk_id)


@cases(UNCASED, CASED, slow=[KEPT, STRIPPED, WORDS])
@settings(deadline=None)
@given(texts=st.lists(TEXT, max_size=5))
def test_generated_text(
    tokenizers: Callable[[WordRules], tuple[InGraphTokenizer, Tokenizer]], rules: WordRules, texts: list[str]
) -> None:
    assert_same_ids(*tokenizers(rules), texts)
    assert_same_offsets(*tokenizers(rules), texts)


def assert_same_offsets(in_graph: InGraphTokenizer, exact: Tokenizer, texts: list[str]) -> None:
    ids, row_splits, offsets = exact.encode_batch_with_offsets(texts)
    found, starts, ends = in_graph.with_offsets(tf.constant(texts, tf.string))
    assert found.row_splits.numpy().tolist() == row_splits.tolist()
    assert found.flat_values.numpy().tolist() == ids.tolist()
    assert starts.dtype == ends.dtype == tf.int32
    for text, row, row_ends, first, last in zip(
        texts, starts.to_list(), ends.to_list(), row_splits[:-1], row_splits[1:], strict=True
    ):
        # Byte and character offsets have the same positions, not only slices of equal content.
        expected = [[len(text[:place].encode()) for place in pair] for pair in offsets[first:last].tolist()]
        assert [list(pair) for pair in zip(row, row_ends, strict=True)] == expected, ascii(text)


def test_words_of_200_characters_and_more() -> None:
    in_graph, exact = both(vocabulary_of("ab,\u1112\u1161"))
    # Characters are counted after normalization: accents do not count, a syllable counts as two or three letters.
    words = ["a" * length for length in (199, 200, 201, 300)] + ["a\u0301" * 200, "\ud558" * 100, "\ud558" * 101]
    assert [len(exact.tokenize(word)) for word in words] == [199, 200, 1, 1, 200, 200, 1]
    assert_same_ids(in_graph, exact, words)
    assert_same_ids(in_graph, exact, [f"b {words[1]},{words[2]} b {words[6]}, {words[1]}", "b"])


def test_bytes_that_are_not_utf_8() -> None:
    in_graph, exact = both(vocabulary_of("ab"))
    for data in (
        b"a\xffb",
        b"a\xe4\xb8",
        b"\x80",
        b"a\xed\xa0\x80b",
        b"\xf4\x90\x80\x80a",
        b"a\xc0\x80b",
        b"\xf0\x9f a",
    ):
        expected = exact.encode_batch([data.decode("utf-8", errors="replace"), "b"])
        found = in_graph([data, b"b"])
        assert found.flat_values.numpy().tolist() == expected[0].tolist(), data
        assert found.row_splits.numpy().tolist() == expected[1].tolist(), data


@cases(UNCASED, slow=[CASED])
def test_real_text(rules: WordRules, real_texts: list[str], shared_data: Path) -> None:
    texts = real_texts[::2]
    assert sum(map(len, texts)) > 250_000
    released = Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")
    assert_same_ids(*both(released, rules), texts)
    # Text in most of the 23 languages is [UNK] in the released vocabulary.
    characters = sorted({c for text in texts for word in split_words(text, rules) for c in word})
    assert_same_ids(*both(vocabulary_of(characters), rules), texts)


WORDS_OF_AB = st.lists(st.sampled_from(["ab", "abab", "a", "?", " "]), max_size=8).map(" ".join)


@settings(deadline=None)
@given(
    texts=st.lists(st.tuples(WORDS_OF_AB, WORDS_OF_AB), max_size=6),
    max_seq_length=st.sampled_from([3, 4, 5, 8, 11, 40]),
)
def test_encode(
    tokenizers: Callable[[WordRules], tuple[InGraphTokenizer, Tokenizer]],
    texts: list[tuple[str, str]],
    max_seq_length: int,
) -> None:
    in_graph, exact = tokenizers(UNCASED)
    first = tf.constant([text for text, _ in texts], tf.string)
    second = tf.constant([pair for _, pair in texts], tf.string)
    expected = [exact.encode(text, pair, max_seq_length) for text, pair in texts]
    assert_same_features(in_graph.encode(first, second, max_seq_length), expected, max_seq_length)
    expected = [exact.encode(text, None, max_seq_length) for text, _ in texts]
    assert_same_features(in_graph.encode(first, max_seq_length=max_seq_length), expected, max_seq_length)


def assert_same_features(found: Sequence[tf.Tensor], expected: list[tuple[list[int], ...]], length: int) -> None:
    for index, values in enumerate(found):
        assert values.dtype == tf.int32
        assert values.shape == (len(expected), length)
        assert values.numpy().tolist() == [features[index] for features in expected]


def test_encode_takes_the_longest_of_the_batch() -> None:
    in_graph, exact = both(vocabulary_of("abc"))
    texts, pairs = ["a b c", "", "a" * 9], ["a", "", "b c"]
    length = 9 + 2 + 3
    expected = [exact.encode(*pair, length) for pair in zip(texts, pairs, strict=True)]
    assert_same_features(in_graph.encode(texts, pairs), expected, length)
    assert_same_features(in_graph.encode(texts), [exact.encode(text, None, 11) for text in texts], 11)
    assert in_graph.encode(tf.constant([], tf.string))[0].shape == (0, 2)


def test_encode_refuses_invalid_arguments() -> None:
    in_graph, _ = both(vocabulary_of("abc"))
    with pytest.raises(ValueError, match="invalid max_seq_length 1: must be at least 2"):
        in_graph.encode(["a"], max_seq_length=1)
    with pytest.raises(ValueError, match="must be at least 3"):
        in_graph.encode(["a"], ["b"], max_seq_length=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="texts and pairs must have the same length"):
        in_graph.encode(["a", "b"], ["b"], max_seq_length=8)


MASKED = st.lists(st.one_of(st.just("[MASK]"), st.just("[MASK"), TEXT), max_size=6).map("".join)


@cases(UNCASED, CASED, slow=[])
@settings(deadline=None)
@given(texts=st.lists(MASKED, max_size=5))
def test_masks_are_kept_whole(
    tokenizers: Callable[[WordRules], tuple[InGraphTokenizer, Tokenizer]], rules: WordRules, texts: list[str]
) -> None:
    in_graph, exact = tokenizers(rules)
    exact = Tokenizer(exact.vocabulary, **asdict(rules), never_split=["[MASK]"])
    ids, row_splits = exact.encode_batch(texts)
    found = in_graph.with_masks(tf.constant(texts, tf.string))
    assert found.dtype == tf.int32
    assert found.row_splits.numpy().tolist() == row_splits.tolist()
    assert found.flat_values.numpy().tolist() == ids.tolist()


def test_masks_in_a_models_input() -> None:
    in_graph, exact = both(vocabulary_of("ab"))
    masking = Tokenizer(exact.vocabulary, never_split=["[MASK]"])
    input_ids, _, _ = in_graph.encode(["a[MASK] b"], max_seq_length=6, keep_masks=True)
    assert input_ids.numpy().tolist() == [masking.encode("a[MASK] b", None, 6)[0]]
    assert exact.vocabulary.mask_id in input_ids.numpy()
    assert exact.vocabulary.mask_id not in in_graph.encode(["a[MASK] b"])[0].numpy()
