import numpy as np

from beambert.bert_model.encoder import MASKED_SCORE, attention_bias


def test_a_mask_alone_has_one_row():
    bias = attention_bias(np.array([[1, 1, 0], [1, 0, 0]]))
    np.testing.assert_array_equal(bias, [[[[0, 0, MASKED_SCORE]]], [[[0, MASKED_SCORE, MASKED_SCORE]]]])
