import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.checkpoints.variable_names import variables_by_tf1_name
from beambert.bert_model.config import BertConfig
from beambert.bert_model.ops import dropout, fold_in
from beambert.bert_model.pretraining import BertForPretraining
from tests.bert_model import reference


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5])
def test_rates_to_their_last_bits(rate):
    """Check over eight million draws, to five standard deviations plus the rounding of the rate to 16 bits."""
    inputs = np.ones((2048, 4096), np.float32)
    outputs = keras.ops.convert_to_numpy(dropout(inputs, rate, np.array([1, 2])))
    assert set(np.unique(outputs)) == {np.float32(0), np.float32(1 / (1 - rate))}
    assert (outputs == 0).mean() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / inputs.size) ** 0.5 + 2**-17)


@pytest.mark.parametrize("shape", [(300, 7), (300, 1), (4, 5, 60)])
def test_neighbours_are_dropped_independently(shape):
    """Check neighbors: two of them share a random word, a half each; rows of odd length leave a half unused."""
    ones = np.ones(shape, np.float32)
    masks = np.stack(
        [keras.ops.convert_to_numpy(dropout(ones, 0.5, np.array([3, site]))).ravel() != 0 for site in range(20)]
    )
    assert masks.mean() == pytest.approx(0.5, abs=0.05)
    assert (masks[:, 1:] == masks[:, :-1]).mean() == pytest.approx(0.5, abs=0.05)
    assert (masks[1:] == masks[:-1]).mean() == pytest.approx(0.5, abs=0.05)


def test_shapes_known_only_when_run():
    graph = tf.function(
        lambda inputs: dropout(inputs, 0.5, tf.constant([3, 4])),
        input_signature=[tf.TensorSpec([None, None], tf.float32)],
    )
    for shape in ((6, 8), (6, 7)):
        inputs = np.ones(shape, np.float32)
        np.testing.assert_array_equal(graph(inputs), dropout(inputs, 0.5, np.array([3, 4])))


def test_no_seed_or_no_rate_is_no_dropout():
    inputs = np.ones((3, 4), np.float32)
    assert dropout(inputs, 0.5, None) is inputs
    assert dropout(inputs, 0.0, np.array([1, 2])) is inputs
    assert fold_in(None, 3) is None


def test_call_sites_have_different_masks():
    seed = np.array([9, 0])
    masks = [
        keras.ops.convert_to_numpy(dropout(np.ones((64, 64), np.float32), 0.5, fold_in(seed, site))) != 0
        for site in range(6)
    ]
    for first in range(6):
        for second in range(first):
            # Independent masks agree in half of the places.
            assert (masks[first] == masks[second]).mean() == pytest.approx(0.5, abs=0.05)
    np.testing.assert_array_equal(fold_in(fold_in(seed, 2), 3), fold_in(seed, 5))


def test_the_encoder_drops_at_its_numbered_sites_and_nowhere_else():
    config = BertConfig(
        vocab_size=9,
        hidden_size=6,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.3,
    )
    keras.utils.set_random_seed(0)
    model = BertForPretraining(config)
    generator = np.random.default_rng(0)
    variables = variables_by_tf1_name(model)
    for variable in variables.values():
        variable.assign(generator.normal(0, 0.5, variable.shape))
    weights = {name: keras.ops.convert_to_numpy(variable).astype(np.float64) for name, variable in variables.items()}
    batch, length = 3, 7
    input_ids = generator.integers(0, 9, (batch, length))
    input_mask = np.ones_like(input_ids)
    segment_ids = generator.integers(0, 2, (batch, length))
    seed = np.array([4, 0])

    def scales(site):
        attention = site % 3 == 1
        shape = (batch, 2, length, length) if attention else (batch, length, 6)
        return keras.ops.convert_to_numpy(
            dropout(np.ones(shape, np.float32), 0.3 if attention else 0.2, fold_in(seed, site))
        )

    all_scales = {site: scales(site) for site in range(model.encoder.dropout_sites)}
    hidden, pooled = model.encoder(input_ids, input_mask, segment_ids, seed=seed)
    for row in range(batch):
        expected = reference.encode(
            weights,
            2,
            2,
            input_ids[row],
            input_mask[row],
            segment_ids[row],
            lambda site, row=row: all_scales[site][row],
        )
        np.testing.assert_allclose(hidden[row], expected[0], atol=1e-5)
        np.testing.assert_allclose(pooled[row], expected[1], atol=1e-5)
