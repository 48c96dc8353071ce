import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED, variable_names, variables_by_tf1_name
from beambert.bert_model.config import BertConfig
from beambert.bert_model.feature_based import BidirectionalLstm
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.ops import dropout, fold_in
from tests.bert_model.small_models import CONFIG, encoder_inputs, randomise

SEED = np.array([5, 0])


@pytest.fixture(scope="module")
def model():
    model = BertForTask(CONFIG, FEATURE_BASED, 4)
    randomise(model)
    return model


def test_only_the_last_four_layers_are_used():
    config = dataclasses.replace(CONFIG, num_hidden_layers=5)
    model = BertForTask(config, FEATURE_BASED, 3)
    inputs = encoder_inputs((2, 6))
    randomise(model)
    hidden = np.concatenate(list(model.encoder.hidden_states(**inputs))[2:], axis=-1)
    assert hidden.shape[-1] == 4 * config.hidden_size
    for layer in model.bilstm.layers:
        hidden = layer(hidden, inputs["input_mask"])
    np.testing.assert_allclose(np.array(model(inputs)), np.array(model.head(hidden)), rtol=1e-4, atol=1e-4)


def test_a_layer_is_that_of_keras():
    ours = BidirectionalLstm(6, 5)
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(5, return_sequences=True))
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(3, 8, 6)).astype(np.float32)
    mask = np.arange(8) < np.array([[8], [3], [5]])
    theirs.build(inputs.shape)
    for mine, other in ((ours.forward, theirs.forward_layer), (ours.backward, theirs.backward_layer)):
        # The initial biases are also those of Keras.
        np.testing.assert_array_equal(mine.bias, other.cell.bias)
        mine.bias.assign(generator.normal(size=20))
        other.set_weights([mine.kernel, mine.recurrent_kernel, mine.bias])
    found, wanted = np.array(ours(inputs, mask.astype(np.int32))), np.array(theirs(inputs, mask=mask))
    np.testing.assert_allclose(found[mask], wanted[mask], rtol=1e-5, atol=1e-6)


def test_padding_changes_nothing(model):
    graph = tf.function(lambda features: model(features), reduce_retracing=True)
    inputs = encoder_inputs((3, 12))
    logits = np.array(graph(inputs))
    for example in range(3):
        size = inputs["input_mask"][example].sum()
        alone = {name: values[example : example + 1, :size] for name, values in inputs.items()}
        np.testing.assert_allclose(logits[example, :size], graph(alone)[0], rtol=1e-4, atol=1e-5)


def test_only_the_new_layers_have_gradients_and_dropout(model):
    inputs = encoder_inputs((3, 12))
    variables = {name: variable.value for name, variable in variables_by_tf1_name(model).items()}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs, seed=SEED) ** 2)
    gradients = dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))
    trained = [name for name in variables if not name.startswith("bert/")]
    assert len(trained) == 14
    assert [name for name, gradient in gradients.items() if gradient is not None] == trained
    assert all(np.any(gradients[name]) for name in trained)
    # Dropout before each layer and before the head uses the seeds that follow those of the encoder.
    seed = fold_in(SEED, model.encoder.dropout_sites)
    rate = CONFIG.hidden_dropout_prob
    hidden = np.concatenate(list(model.encoder.hidden_states(**inputs))[1:], axis=-1)
    for place, layer in enumerate(model.bilstm.layers):
        hidden = layer(dropout(hidden, rate, fold_in(seed, place)), inputs["input_mask"])
    wanted = model.head(dropout(hidden, rate, fold_in(seed, 2)))
    np.testing.assert_allclose(np.array(model(inputs, seed=SEED)), np.array(wanted), rtol=1e-4, atol=1e-4)


def test_float32_regardless_of_the_dtype_policy():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = BertForTask(CONFIG, FEATURE_BASED, 3)
        logits = model(encoder_inputs((2, 6)), seed=SEED)
    finally:
        keras.config.set_dtype_policy("float32")
    assert logits.dtype == "float32"
    assert {variable.dtype for variable in model.variables} == {"float32"}


def test_base_has_768_units_a_direction():
    shapes = {name.tf1: name.shape for name in variable_names(BertConfig.preset("base", 30522), FEATURE_BASED, 9)}
    assert shapes["bilstm/layer_0/forward/kernel"] == (4 * 768, 4 * 768)
    assert shapes["bilstm/layer_0/backward/recurrent_kernel"] == (768, 4 * 768)
    assert shapes["bilstm/layer_1/backward/kernel"] == (2 * 768, 4 * 768)
    assert shapes["output_weights"] == (9, 2 * 768)
