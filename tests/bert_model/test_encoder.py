import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.config import BertConfig
from beambert.bert_model.encoder import Packing
from beambert.bert_model.heads import cls_embedding, mean_embedding
from beambert.bert_model.ops import gelu
from beambert.bert_model.pretraining import BertForPretraining
from tests.bert_model import reference
from tests.bert_model.small_models import CONFIG, encoder_inputs, packed_inputs, randomise

SEED = np.array([5, 0])


def make_encoder(config=CONFIG, **options):
    model = BertForPretraining(config, **options)
    weights = randomise(model)
    return model.encoder, weights


def expected(weights, inputs, config=CONFIG, **options):
    """Return the outputs of the reference for each example of a batch."""
    return [
        reference.encode(weights, config.num_hidden_layers, config.num_attention_heads, *example, **options)
        for example in zip(inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"], strict=True)
    ]


def assert_close(actual, wanted, tolerance=1e-5):
    np.testing.assert_allclose(keras.ops.convert_to_numpy(actual), wanted, rtol=tolerance, atol=tolerance)


def test_hidden_states_and_attention_maps_of_all_layers():
    encoder, weights = make_encoder()
    inputs = encoder_inputs((5, 16))
    hidden, pooled = encoder(**inputs)
    states, maps = list(encoder.hidden_states(**inputs)), encoder.attention_maps(**inputs)
    examples = expected(weights, inputs)
    assert (len(states), len(maps)) == (4, 3)
    assert_close(hidden, [example.hidden for example in examples])
    assert_close(pooled, [example.pooled for example in examples])
    for layer in range(4):
        assert_close(states[layer], [example.states[layer] for example in examples])
    for layer in range(3):
        assert_close(maps[layer], [example.maps[layer] for example in examples])


@pytest.mark.parametrize("name", ["gelu", "gelu_erf", "relu"])
def test_activations_and_epsilon(name):
    config = dataclasses.replace(CONFIG, hidden_act=name, layer_norm_eps=0.3)
    encoder, weights = make_encoder(config)
    inputs = encoder_inputs((2, 9))
    examples = expected(weights, inputs, activation=getattr(reference, name), epsilon=0.3)
    assert_close(encoder(**inputs)[0], [example.hidden for example in examples])


def test_gradient_of_gelu():
    inputs = tf.linspace(tf.constant(-6.0), 6.0, 241)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = gelu(inputs)
    step = 1e-5
    points = np.linspace(-6, 6, 241)
    wanted = (reference.gelu(points + step) - reference.gelu(points - step)) / (2 * step)
    assert_close(tape.gradient(outputs, inputs), wanted)


def test_causal_attention():
    encoder, weights = make_encoder(causal_attention=True)
    inputs = encoder_inputs((4, 16))
    hidden, pooled = encoder(**inputs)
    examples = expected(weights, inputs, causal_attention=True)
    assert_close(hidden, [example.hidden for example in examples])
    assert_close(pooled, [example.pooled for example in examples])


@pytest.mark.parametrize("causal_attention", [False, True])
def test_the_instances_of_a_packed_row_are_encoded_as_if_alone(causal_attention):
    encoder, weights = make_encoder(causal_attention=causal_attention)
    lengths = [7, 11, 4]
    # The row is longer than the model's number of positions; no instance is.
    row, instances = packed_inputs(lengths, row_length=26)
    positions = row.pop("next_sentence_positions")
    packing = Packing(row.pop("sequence_ids"), positions)
    hidden, pooled = encoder(**row, packing=packing)
    maps = encoder.attention_maps(**row, packing=packing)
    assert pooled.shape == (1, 3, CONFIG.hidden_size)
    assert_close(encoder(**row, packing=packing._replace(cls_positions=None))[1], pooled[:, 0])
    for index, (start, instance) in enumerate(zip(positions[0], instances, strict=True)):
        alone = reference.encode(weights, 3, 4, **instance, causal_attention=causal_attention)
        end = start + lengths[index]
        assert_close(hidden[0, start:end], alone.hidden)
        assert_close(pooled[0, index], alone.pooled)
        for attention_map, wanted in zip(maps, alone.maps, strict=True):
            assert_close(attention_map[0, :, start:end, start:end], wanted)
            assert_close(keras.ops.sum(attention_map[0, :, start:end, start:end], axis=-1), 1.0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("causal_attention", [False, True])
def test_outputs_at_selected_positions_are_those_of_all_positions(packed, causal_attention):
    encoder, _ = make_encoder(causal_attention=causal_attention)
    if packed:
        inputs, _ = packed_inputs([7, 6, 4], row_length=20)
        packing = Packing(inputs.pop("sequence_ids"), inputs.pop("next_sentence_positions"))
    else:
        inputs, packing = encoder_inputs((3, 16)), None
    hidden, pooled = encoder(**inputs, packing=packing)
    positions = np.array([[8, 0, 15, 8]] * len(inputs["input_ids"]))
    for count in (0, 4):
        some, same_pooled = encoder(**inputs, packing=packing, output_positions=positions[:, :count])
        rows = np.arange(len(positions))[:, None]
        assert_close(some, keras.ops.convert_to_numpy(hidden)[rows, positions[:, :count]])
        assert_close(same_pooled, pooled)
    if not packed:
        assert_close(encoder.pooled_output(**inputs), pooled)


def test_bfloat16_is_near_float32_and_keeps_softmax_and_normalisation_in_float32():
    encoder, _ = make_encoder()
    inputs = encoder_inputs((4, 16))
    exact = list(encoder.hidden_states(**inputs))
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        mixed, _ = make_encoder()
        states, maps = list(mixed.hidden_states(**inputs)), mixed.attention_maps(**inputs)
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    assert {variable.dtype for variable in mixed.variables} == {"float32"}
    assert mixed.layers[0].intermediate.compute_dtype == "bfloat16"
    for state, wanted in zip(states, exact, strict=True):
        assert state.dtype == tf.float32
        assert np.abs(np.asarray(state) - np.asarray(wanted)).mean() < 0.02
    # No matrix product precedes the first hidden states.
    assert_close(states[0], exact[0], 1e-6)
    assert np.abs(np.asarray(states[1]) - np.asarray(exact[1])).max() > 1e-4
    for attention_map in maps:
        # In bfloat16 a sum would be off by about 1e-3.
        assert attention_map.dtype == tf.float32
        assert_close(tf.reduce_sum(attention_map, -1), 1.0, 1e-6)


def test_text_embeddings():
    encoder, _ = make_encoder()
    inputs = encoder_inputs((4, 16))
    hidden = np.asarray(encoder(**inputs)[0])
    means = [row[mask == 1].mean(axis=0) for row, mask in zip(hidden, inputs["input_mask"], strict=True)]
    assert_close(mean_embedding(hidden, inputs["input_mask"]), means)
    assert_close(cls_embedding(hidden), hidden[:, 0])
    assert_close(mean_embedding(hidden, np.zeros((4, 16))), np.zeros((4, CONFIG.hidden_size)))


def test_one_layer_one_head():
    config = BertConfig(8, 4, 1, 1, 8, max_position_embeddings=8)
    encoder, weights = make_encoder(config)
    inputs = encoder_inputs((2, 6), config)
    hidden, pooled = encoder(**inputs, output_positions=np.array([[0, 1]] * 2))
    examples = expected(weights, inputs, config)
    assert_close(hidden, [example.hidden[:2] for example in examples])
    assert_close(pooled, [example.pooled for example in examples])
