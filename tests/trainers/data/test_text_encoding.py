"""Tests of encoding many texts at once against `Tokenizer.encode`, which encodes one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.data.text_encoding import encode_texts
from beambert.trainers.errors import TaskDataError

SMALL = Tokenizer(Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "c", ".")))


def assert_equal_to_plain(rows, texts, pairs, tokenizer, length):
    """Check every row, and which texts were truncated, against `Tokenizer.encode`."""
    for number, (text, pair) in enumerate(zip(texts, pairs, strict=True)):
        ids, mask, segments = tokenizer.encode(text, pair, length)
        whole = sum(tokenizer.encode(text, pair, 10_000)[1])
        start, end = rows.row_splits[number : number + 2]
        assert rows.ids[start:end].tolist() == ids[: sum(mask)]
        assert rows.segment_ids[start:end].tolist() == segments[: sum(mask)]
        assert rows.truncated[number] == (whole > length)
    assert len(rows.row_splits) == len(texts) + 1
    assert rows.row_splits[0] == 0
    assert rows.row_splits[-1] == len(rows.ids) == len(rows.segment_ids)
    assert (rows.ids.dtype, rows.segment_ids.dtype, rows.row_splits.dtype) == ("int32", "int32", "int64")


texts = st.text("ab c.\u0301x", max_size=25)


@given(st.lists(st.tuples(texts, st.none() | texts), max_size=6), st.integers(3, 20))
def test_rows_are_those_of_one_text_at_a_time(examples, length):
    firsts, seconds = [text for text, _ in examples], [pair for _, pair in examples]
    rows = encode_texts(firsts, seconds, SMALL, length)
    assert_equal_to_plain(rows, firsts, seconds, SMALL, length)


def test_every_way_to_cut_a_pair():
    lengths = [(first, second) for first in range(9) for second in range(9)]
    firsts, seconds = ["a " * first for first, _ in lengths], ["b " * second for _, second in lengths]
    for length in range(3, 20):
        assert_equal_to_plain(encode_texts(firsts, seconds, SMALL, length), firsts, seconds, SMALL, length)


def test_single_texts_need_no_list_of_nones():
    rows = encode_texts(["a b", "c"], None, SMALL, 8)
    assert_equal_to_plain(rows, ["a b", "c"], [None, None], SMALL, 8)


@pytest.mark.parametrize(("pair", "least"), [(None, 2), ("b", 3)])
def test_a_length_without_room_is_refused(pair, least):
    assert len(encode_texts(["a"], [pair], SMALL, least).ids) == 2
    with pytest.raises(TaskDataError, match=f"invalid --max_seq_length {least - 1}: must be at least {least}, "):
        encode_texts(["a"], [pair], SMALL, least - 1)
