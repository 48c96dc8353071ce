import numpy as np
import pytest
import tensorflow as tf

from bert_model.checkpoints.variable_names import variables_by_tf1_name
from bert_model.config import BertConfig
from bert_model.pretraining import BertForPretraining, pretraining_losses
from tests.conftest import with_slow
from trainers.backends.rematerialization import set_activation_checkpointing

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=20,
)


def make_model():
    model = BertForPretraining(CONFIG)
    generator = np.random.default_rng(0)
    for variable in variables_by_tf1_name(model).values():
        variable.assign(generator.normal(0, 0.3, variable.shape))
    return model


def make_features():
    generator = np.random.default_rng(1)
    lengths = np.array([16, 11, 9])
    return {
        "input_ids": tf.constant(generator.integers(0, 50, (3, 16)), tf.int32),
        "input_mask": tf.constant(np.arange(16) < lengths[:, None], tf.int32),
        "segment_ids": tf.constant(np.arange(16) >= np.array([[5], [6], [7]]), tf.int32),
        "masked_lm_positions": tf.constant([[1, 3, 5, 8]] * 3, tf.int32),
        "masked_lm_ids": tf.constant(generator.integers(0, 50, (3, 4)), tf.int32),
        "masked_lm_weights": tf.constant([[1, 1, 1, 0]] * 3, tf.float32),
        "next_sentence_labels": tf.constant([[0], [1], [1]], tf.int32),
    }


def traced(model, what, **options):
    """Return the step as a graph function, with loss and gradients as results."""
    set_activation_checkpointing(model.encoder, what)
    variables = [variable.value for variable in variables_by_tf1_name(model).values()]

    @tf.function(**options)
    def step(features, seed):
        with tf.GradientTape() as tape:
            loss = pretraining_losses(model(features, seed), features).total
        return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    return step


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", with_slow([False, True], [True]))
def test_gradients_with_dropout_are_those_without_recomputation(jit_compile):
    model, features, seed = make_model(), make_features(), tf.constant([7, 0])
    wanted_loss, wanted = traced(model, "none", jit_compile=jit_compile)(features, seed)
    for what in ("layer", "attention"):
        loss, gradients = traced(model, what, jit_compile=jit_compile)(features, seed)
        np.testing.assert_allclose(loss, wanted_loss, rtol=1e-6)
        for one, other, name in zip(gradients, wanted, variables_by_tf1_name(model), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=name)
    other_loss, _ = traced(model, "none", jit_compile=jit_compile)(features, tf.constant([8, 0]))
    assert abs(float(other_loss) - float(wanted_loss)) > 1e-3


def test_checkpointed_parts_draw_their_dropout_masks_twice():
    """Count the draws of dropout masks: 1 for the embeddings and 3 per layer.

    Activation checkpointing draws masks again: the 3 masks of each layer, or the mask of its attention.
    """
    model, features = make_model(), make_features()
    drawings = {}
    for what in ("none", "layer", "attention"):
        graph = traced(model, what).get_concrete_function(features, tf.TensorSpec([2], tf.int32)).graph
        drawings[what] = sum(
            operation.type.startswith("StatelessRandomUniform") for operation in graph.get_operations()
        )
    assert drawings == {"none": 1 + 3 * 2, "layer": 1 + 6 * 2, "attention": 1 + 4 * 2}


@pytest.mark.slow
def test_without_dropout_and_outside_of_training():
    model, features = make_model(), make_features()
    wanted = model(features).masked_lm
    _, wanted_gradients = traced(model, "none")(features, None)
    for what in ("layer", "attention"):
        set_activation_checkpointing(model.encoder, what)
        np.testing.assert_allclose(model(features).masked_lm, wanted, rtol=1e-6)
        _, gradients = traced(model, what)(features, None)
        for one, other in zip(gradients, wanted_gradients, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
