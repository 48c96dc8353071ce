import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED, TASKS, variable_names, variables_by_tf1_name
from beambert.bert_model.config import ConfigError
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.ops import dropout, fold_in
from tests.bert_model import reference
from tests.bert_model.small_models import CONFIG, encoder_inputs, randomise

SEED = np.array([5, 0])


def make_model(task, num_labels=None):
    model = BertForTask(CONFIG, task, num_labels)
    return model, randomise(model)


def encoded(weights, inputs):
    """Return the hidden states [B, S, H] and the pooled outputs [B, H] of the reference."""
    examples = [
        reference.encode(weights, CONFIG.num_hidden_layers, CONFIG.num_attention_heads, *example)
        for example in zip(inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"], strict=True)
    ]
    return np.array([example.hidden for example in examples]), np.array([example.pooled for example in examples])


def assert_close(actual, wanted):
    assert tuple(actual.shape) == np.shape(wanted)
    assert actual.dtype == "float32"
    np.testing.assert_allclose(keras.ops.convert_to_numpy(actual), wanted, rtol=1e-5, atol=1e-5)


def test_classification_and_regression():
    inputs = encoder_inputs((5, 12))
    model, weights = make_model("classification", 3)
    _, pooled = encoded(weights, inputs)
    assert_close(model(inputs), pooled @ weights["output_weights"].T + weights["output_bias"])
    model, weights = make_model("regression")
    _, pooled = encoded(weights, inputs)
    assert_close(model(inputs), (pooled @ weights["output_weights"].T + weights["output_bias"])[:, 0])


def test_span():
    inputs = encoder_inputs((5, 12))
    model, weights = make_model("span")
    hidden, _ = encoded(weights, inputs)
    logits = hidden @ weights["cls/squad/output_weights"].T + weights["cls/squad/output_bias"]
    start, end = model(inputs)
    assert_close(start, logits[:, :, 0])
    assert_close(end, logits[:, :, 1])


def test_token_classification():
    inputs = encoder_inputs((5, 12))
    model, weights = make_model("token_classification", 4)
    hidden, _ = encoded(weights, inputs)
    assert_close(model(inputs), hidden @ weights["output_weights"].T + weights["output_bias"])


def test_multiple_choice():
    inputs = encoder_inputs((5, 3, 12))
    model, weights = make_model("multiple_choice")
    _, pooled = encoded(weights, {name: values.reshape(15, 12) for name, values in inputs.items()})
    logits = pooled @ weights["output_weights"].T + weights["output_bias"]
    assert_close(model(inputs), logits.reshape(5, 3))


def test_the_heads_dropout_follows_those_of_the_encoder():
    inputs = encoder_inputs((5, 12))
    for task in ("classification", "token_classification"):
        model, weights = make_model(task, 3)
        is_pooled = task == "classification"
        encoder = model.encoder
        dropped = dropout(
            encoder.pooled_output(**inputs, seed=SEED) if is_pooled else encoder(**inputs, seed=SEED)[0],
            CONFIG.hidden_dropout_prob,
            fold_in(SEED, model.encoder.dropout_sites),
        )
        logits = np.asarray(dropped) @ weights["output_weights"].T + weights["output_bias"]
        assert_close(model(inputs, seed=SEED), logits)
    # The released code has no dropout before the span head.
    model, weights = make_model("span")
    hidden, _ = model.encoder(**inputs, seed=SEED)
    logits = np.asarray(hidden) @ weights["cls/squad/output_weights"].T + weights["cls/squad/output_bias"]
    assert_close(model(inputs, seed=SEED)[0], logits[:, :, 0])


@pytest.mark.parametrize("task", ["classification", "multiple_choice", FEATURE_BASED])
def test_a_graph_takes_batches_of_any_size(task):
    model, _ = make_model(task, TASKS[task] or 3)
    shape = (2, 3, 12) if task == "multiple_choice" else (5, 12)
    inputs = {name: tf.constant(values) for name, values in encoder_inputs(shape).items()}
    signature = {name: tf.TensorSpec([None] * len(shape), tf.int32) for name in inputs}
    graph = tf.function(lambda features: model(features), input_signature=[signature])
    for result, wanted in zip(tf.nest.flatten(graph(inputs)), tf.nest.flatten(model(inputs)), strict=True):
        assert_close(result, np.asarray(wanted))


@pytest.mark.parametrize("task", TASKS)
def test_the_table_names_every_variable_once(task):
    labels = TASKS[task] or 5
    model = BertForTask(CONFIG, task, labels)
    names = variable_names(CONFIG, task, labels)
    variables = variables_by_tf1_name(model)
    assert [tuple(variable.shape) for variable in variables.values()] == [name.shape for name in names]
    assert sorted(id(variable) for variable in variables.values()) == sorted(id(v) for v in model.variables)
    tf1, hugging_face = ("cls/squad/", "qa_outputs.") if task == "span" else ("", "classifier.")
    size = CONFIG.hidden_size * (2 if task == FEATURE_BASED else 1)
    assert names[-2][1:] == (f"{tf1}output_weights", f"{hugging_face}weight", (labels, size))
    assert names[-1][1:] == (f"{tf1}output_bias", f"{hugging_face}bias", (labels,))
    # The encoder's names are those of pretraining.
    heads = 2 + 12 * (task == FEATURE_BASED)
    assert names[:-heads] == variable_names(CONFIG)[:-7]


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("clasification", 2, "unknown task 'clasification'; choose from classification, regression"),
        ("classification", None, "invalid num_labels None for task classification: must be at least 1"),
        ("token_classification", 0, "invalid num_labels 0 for task token_classification: must be at least 1"),
        ("span", 3, "invalid num_labels 3 for task span: must be 2, or None"),
    ],
)
def test_invalid_tasks_and_numbers_of_labels(task, labels, message):
    with pytest.raises(ConfigError) as caught:
        BertForTask(CONFIG, task, labels)
    assert message in str(caught.value)
