"""Test byte offsets and whole [MASK] tokens in a TensorFlow graph against the exact tokenizer."""

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert_common.word_rules import WordRules
from tests.tokenizer.mixed_scripts import ARTICLE_1
from tokenizer.in_graph import InGraphTokenizer
from tokenizer.normalization import split_words
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from tokenizer.wordpiece import CONTINUATION

CASES = pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
# Accents, marks that NFD moves, characters composed with them, Hangul, removed characters, spaces, punctuation.
CHARACTERS = (
    "abB \u00e9\u1e69\u0301\u0327\u0345\u302e\u302f\U0001d165\U0001d16d\U00016ff0\U0001d15e\U0001d160\ud558\ud55c"
    "\u0130\u03a3\u0391\u00df\x01\u200d\u00ad\t\u3000.,[]\u4e00\U0001f600\ue000MASK"
)
TEXT = st.text(st.sampled_from(CHARACTERS), max_size=12)
MASKED = st.lists(st.one_of(st.just("[MASK]"), st.just("[MASK"), TEXT), max_size=6).map("".join)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizers(request: pytest.FixtureRequest) -> tuple[InGraphTokenizer, Vocabulary, bool]:
    characters = sorted(
        {c for a in CHARACTERS for word in split_words(f"a{a}b", WordRules(request.param)) for c in word}
    )
    characters = [c for c in characters if c not in "\U0001f600"]
    continued = [CONTINUATION + c for c in characters]
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *characters, *continued, "ab", "##ba", "##\u1161\u11ab"))
    return InGraphTokenizer(vocabulary, request.param), vocabulary, request.param


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


@settings(deadline=None)
@given(texts=st.lists(TEXT, max_size=5))
def test_offsets_of_generated_text(tokenizers: tuple[InGraphTokenizer, Vocabulary, bool], texts: list[str]) -> None:
    in_graph, vocabulary, do_lower_case = tokenizers
    assert_same_offsets(in_graph, Tokenizer(vocabulary, do_lower_case), texts)


@CASES
def test_offsets_in_many_scripts(do_lower_case: bool) -> None:
    texts = list(ARTICLE_1.values())
    characters = sorted({c for text in texts for word in split_words(text, WordRules(do_lower_case)) for c in word})
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *characters, *(CONTINUATION + c for c in characters)))
    assert_same_offsets(InGraphTokenizer(vocabulary, do_lower_case), Tokenizer(vocabulary, do_lower_case), texts)


@settings(deadline=None)
@given(texts=st.lists(MASKED, max_size=5))
def test_masks_are_kept_whole(tokenizers: tuple[InGraphTokenizer, Vocabulary, bool], texts: list[str]) -> None:
    in_graph, vocabulary, do_lower_case = tokenizers
    exact = Tokenizer(vocabulary, do_lower_case, never_split=["[MASK]"])
    ids, row_splits = exact.encode_batch(texts)
    found = in_graph.with_masks(tf.constant(texts, tf.string))
    assert found.dtype == tf.int32
    assert found.row_splits.numpy().tolist() == row_splits.tolist()
    assert found.flat_values.numpy().tolist() == ids.tolist()


def test_masks_in_a_models_input(tokenizers: tuple[InGraphTokenizer, Vocabulary, bool]) -> None:
    in_graph, vocabulary, do_lower_case = tokenizers
    exact = Tokenizer(vocabulary, do_lower_case, never_split=["[MASK]"])
    input_ids, _, _ = in_graph.encode(["a[MASK] b"], max_seq_length=6, keep_masks=True)
    assert input_ids.numpy().tolist() == [exact.encode("a[MASK] b", None, 6)[0]]
    assert vocabulary.mask_id in input_ids.numpy()
    assert vocabulary.mask_id not in in_graph.encode(["a[MASK] b"])[0].numpy()
