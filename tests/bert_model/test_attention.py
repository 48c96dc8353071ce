import keras
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_model.attention import MASKED_SCORE, attention_bias, positions_in_sequence


@st.composite
def rows(draw):
    """Draw the sequence_ids [S] of a packed row: instances of random lengths in order, then padding."""
    lengths = draw(st.lists(st.integers(1, 5), max_size=4))
    ids = [number for number, length in enumerate(lengths, start=1) for _ in range(length)]
    return ids + [0] * draw(st.integers(0 if ids else 1, 5))


@settings(deadline=None, max_examples=40)
@given(rows(), st.booleans())
def test_attention_bias_and_positions(ids, causal_attention):
    sequence_ids = np.array([ids])
    mask = (sequence_ids > 0).astype(np.int32)
    packed = keras.ops.convert_to_numpy(attention_bias(mask, sequence_ids, causal_attention))
    plain = keras.ops.convert_to_numpy(attention_bias(mask, None, causal_attention))
    plain = np.broadcast_to(plain, packed.shape)
    positions = keras.ops.convert_to_numpy(positions_in_sequence(sequence_ids))
    assert packed.shape == (1, 1, len(ids), len(ids))
    for query, query_id in enumerate(ids):
        assert positions[0, query] == query - ids.index(query_id)
        for key, key_id in enumerate(ids):
            real = key_id > 0 and not (causal_attention and key > query)
            assert plain[0, 0, query, key] == (0 if real else MASKED_SCORE)
            assert packed[0, 0, query, key] == (0 if real and key_id == query_id else MASKED_SCORE)


def test_a_mask_alone_has_one_row():
    bias = attention_bias(np.array([[1, 1, 0], [1, 0, 0]]))
    np.testing.assert_array_equal(bias, [[[[0, 0, MASKED_SCORE]]], [[[0, MASKED_SCORE, MASKED_SCORE]]]])
