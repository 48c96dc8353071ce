"""Test the tokenizer of tensorflow_text in a graph: equal to the exact one except for the counted differences."""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow_text", exc_type=ImportError)

from beambert.common.word_rules import WordRules
from beambert.tokenizer.differences import TokenizerDifferences, find_differences
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from tests.tokenizer.test_in_graph import ALPHABET, COMPOSED, MARKS, vocabulary_of, vocabulary_of_alphabet

# The differences of cased text are fewer: it is not converted to NFD.
CASES = pytest.mark.parametrize(
    "do_lower_case", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["uncased", "cased"]
)
TEXT = st.one_of(
    st.text(st.sampled_from("ab " + MARKS + COMPOSED)),
    st.text(st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=["Cs"]))),
)
MASKED = st.lists(st.one_of(st.just("[MASK]"), st.just("[MASK"), TEXT), max_size=6).map("".join)


class Compared:
    """Both tokenizers of a vocabulary, and their counted differences."""

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool, differences: TokenizerDifferences | None = None):
        self.vocabulary = vocabulary
        self.exact = Tokenizer(vocabulary, do_lower_case)
        self.fast = TensorFlowTextTokenizer(vocabulary, do_lower_case)
        self.differences = differences or find_differences(
            vocabulary, WordRules(do_lower_case), lambda v: TensorFlowTextTokenizer(v, do_lower_case).encode_batch
        )
        # tensorflow_text does not sort marks. Without the second marks of the pairs, there is nothing to sort.
        unsorted = {second for _, second in self.differences.mark_pairs}
        self._dropped = dict.fromkeys({*self.differences.code_points, *unsorted})

    def without_differences(self, texts: Iterable[str]) -> list[str]:
        return [text.translate(self._dropped) for text in texts]

    def assert_same_ids(self, texts: list[str]) -> None:
        ids, row_splits = self.exact.encode_batch(texts)
        found, found_splits = self.fast.encode_batch(texts)
        if found.tolist() == ids.tolist() and found_splits.tolist() == row_splits.tolist():
            return
        for text in texts:
            (row, _), (found_row, _) = self.exact.encode_batch([text]), self.fast.encode_batch([text])
            assert found_row.tolist() == row.tolist(), ascii(text)
        pytest.fail("rows are equal, the whole is not")


@pytest.fixture(scope="module")
def compared() -> Callable[[bool], Compared]:
    """A function from `do_lower_case` to tokenizers with a vocabulary of characters."""

    return functools.cache(
        lambda do_lower_case: Compared(vocabulary_of_alphabet(WordRules(do_lower_case)), do_lower_case)
    )


@pytest.fixture(scope="module")
def released(shared_data: Path) -> Callable[[bool], Compared]:
    """A function from `do_lower_case` to tokenizers with the vocabulary of the released model."""
    vocabulary = Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")
    return functools.cache(lambda do_lower_case: Compared(vocabulary, do_lower_case))


@pytest.mark.slow
@CASES
def test_real_text_without_differing_code_points(
    released: Callable[[bool], Compared], do_lower_case: bool, real_texts: list[str]
) -> None:
    texts = real_texts[::2]
    both = released(do_lower_case)
    assert both.differences.tokens == ()
    clean = both.without_differences(texts)
    assert sum(map(len, clean)) > 0.99 * sum(map(len, texts)) > 250_000
    both.assert_same_ids(clean)
    # Text in most of the 23 languages is [UNK] in the released vocabulary.
    characters = sorted({c for text in clean for word in split_words(text, WordRules(do_lower_case)) for c in word})
    Compared(vocabulary_of(characters), do_lower_case, both.differences).assert_same_ids(clean)


def test_unsorted_marks_are_counted(compared: Callable[[bool], Compared]) -> None:
    both = compared(True)
    first, second = both.differences.mark_pairs[0]
    assert not {first, second} & {*both.differences.code_points}
    text = f"a{chr(first)}{chr(second)}a"
    assert both.fast.encode_batch([text])[0].tolist() != both.exact.encode_batch([text])[0].tolist()


@pytest.mark.parametrize(("character", "text"), [("\u00df", "a\u00dfb"), ("\u2026", "a\u2026"), ("\x01", "a\x01b")])
def test_a_differing_code_point_is_counted(compared: Callable[[bool], Compared], character: str, text: str) -> None:
    both = compared(True)
    assert both.fast.encode_batch([text])[0].tolist() != both.exact.encode_batch([text])[0].tolist()
    assert ord(character) in both.differences.code_points
    assert (ord(character) in both.differences.in_vocabulary) == (character != "\x01")


@CASES
@settings(deadline=None)
@given(texts=st.lists(TEXT, max_size=5))
def test_offsets(compared: Callable[[bool], Compared], do_lower_case: bool, texts: list[str]) -> None:
    both = compared(do_lower_case)
    assert_offsets(both, both.without_differences(texts))


def assert_offsets(both: Compared, texts: list[str]) -> None:
    """Check that starts are equal; an end may include characters that have no token."""
    ids, row_splits, offsets = both.exact.encode_batch_with_offsets(texts)
    found, starts, ends = both.fast.with_offsets(tf.constant(texts, tf.string))
    assert found.row_splits.numpy().tolist() == row_splits.tolist()
    assert found.flat_values.numpy().tolist() == ids.tolist()
    assert starts.dtype == ends.dtype == tf.int32
    for number, (text, row_starts, row_ends) in enumerate(zip(texts, starts.to_list(), ends.to_list(), strict=True)):
        data = text.encode()
        expected = offsets[row_splits[number] : row_splits[number + 1]].tolist()
        assert [data[:start].decode() for start in row_starts] == [text[:start] for start, _ in expected], ascii(text)
        for end, (_, expected_end) in zip(row_ends, expected, strict=True):
            expected_byte = len(text[:expected_end].encode())
            assert end >= expected_byte, ascii(text)
            removed = data[expected_byte:end].decode()
            assert both.exact.tokenize(f"a{removed}") == ["a"], ascii(text)


@CASES
@settings(deadline=None)
@given(texts=st.lists(MASKED, max_size=5))
def test_masks(compared: Callable[[bool], Compared], do_lower_case: bool, texts: list[str]) -> None:
    both = compared(do_lower_case)
    texts = both.without_differences(texts)
    ids, row_splits = Tokenizer(both.vocabulary, do_lower_case, never_split=["[MASK]"]).encode_batch(texts)
    found = both.fast.with_masks(tf.constant(texts, tf.string))
    assert found.row_splits.numpy().tolist() == row_splits.tolist()
    assert found.flat_values.numpy().tolist() == ids.tolist()


def test_inputs_of_a_model(compared: Callable[[bool], Compared]) -> None:
    both = compared(True)
    texts, pairs = ["ab ab b", "", "a[MASK]"], ["a", "b b b b", ""]
    for max_seq_length in (4, 6, 20):
        expected = [both.exact.encode(*pair, max_seq_length) for pair in zip(texts, pairs, strict=True)]
        found = both.fast.encode(tf.constant(texts), tf.constant(pairs), max_seq_length)
        assert [values.numpy().tolist() for values in found] == [list(part) for part in zip(*expected, strict=True)]
    input_ids, _, _ = both.fast.encode(tf.constant(["a[MASK]"]), None, 8, keep_masks=True)
    assert both.vocabulary.mask_id in input_ids.numpy()
    assert both.fast.encode(tf.constant([], tf.string))[0].shape == (0, 2)


def test_long_words_and_bytes_that_are_not_utf_8() -> None:
    vocabulary = vocabulary_of("ab\u0e01")
    exact, fast = Tokenizer(vocabulary), TensorFlowTextTokenizer(vocabulary)
    # No word that the exact tokenizer splits into tokens becomes [UNK].
    for word in ("a" * 200, "\u0e01" * 200):
        assert len(exact.tokenize(word)) == len(fast.encode_batch([word])[0]) == 200
    assert len(exact.tokenize("a" * 201)) == 1
    assert len(fast.encode_batch(["a" * 201])[0]) == 201
    assert fast.encode_batch(["a" * 801])[0].tolist() == [vocabulary.unk_id]
    for data in (b"b a\xffb b", b"b a\xe4\xb8 b"):
        rows = [row.tolist() for row in fast(tf.constant([data])).numpy()]
        assert rows == [[vocabulary.ids["b"], vocabulary.unk_id, vocabulary.ids["b"]]]


@pytest.mark.parametrize("tokens", [["a" * 300], ["a.b"]])
def test_unsupported_vocabulary(tokens: list[str]) -> None:
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *tokens), "vocab.txt")
    with pytest.raises(
        VocabularyError, match=r"^vocab.txt: not supported by tensorflow_text \(.*; use --tokenizer exact"
    ):
        TensorFlowTextTokenizer(vocabulary)
