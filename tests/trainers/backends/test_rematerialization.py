import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.checkpoints.variable_names import variables_by_tf1_name
from beambert.bert_model.pretraining import BertForPretraining, pretraining_losses
from tests.bert_model.small_models import CONFIG, encoder_inputs, randomise


def make_model():
    model = BertForPretraining(CONFIG)
    randomise(model)
    return model


def make_features():
    features = {
        **encoder_inputs((3, 16)),
        "masked_lm_positions": np.array([[1, 3, 5, 8]] * 3),
        "masked_lm_ids": np.random.default_rng(1).integers(0, 50, (3, 4)),
        "masked_lm_weights": np.array([[1.0, 1, 1, 0]] * 3, np.float32),
        "next_sentence_labels": np.array([[0], [1], [1]]),
    }
    return {name: tf.constant(values) for name, values in features.items()}


def traced(model, what, **options):
    """Return the step as a graph function, with loss and gradients as results."""
    model.encoder.set_activation_checkpointing(what)
    variables = [variable.value for variable in variables_by_tf1_name(model).values()]

    @tf.function(**options)
    def step(features, seed):
        with tf.GradientTape() as tape:
            loss = pretraining_losses(model(features, seed), features).total
        return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    return step


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
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
    assert drawings == {"none": 1 + 3 * 3, "layer": 1 + 6 * 3, "attention": 1 + 4 * 3}
