import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.checkpoints.variable_names import variables_by_tf1_name
from beambert.bert_model.config import BertConfig
from beambert.bert_model.ops import cross_entropy
from beambert.bert_model.pretraining import BertForPretraining, pretraining_losses
from beambert.bert_model.size import padded_size
from tests.bert_model import reference
from tests.bert_model.small_models import CONFIG, encoder_inputs, packed_inputs, randomise


def make_model(config=CONFIG, seed=1):
    keras.utils.set_random_seed(seed)
    return BertForPretraining(config)


def make_features(batch=5, length=16, predictions=4, seed=0):
    generator = np.random.default_rng(seed)
    return {
        **encoder_inputs((batch, length), seed=seed),
        "masked_lm_positions": generator.integers(0, length // 2, (batch, predictions)),
        "masked_lm_ids": generator.integers(0, CONFIG.vocab_size, (batch, predictions)),
        "masked_lm_weights": generator.integers(0, 2, (batch, predictions)).astype(np.float32),
        "next_sentence_labels": generator.integers(0, 2, (batch, 1)),
    }


def test_agrees_with_the_reference_in_float64():
    model = make_model()
    weights = randomise(model)
    features = make_features()
    logits = model(features)
    losses = pretraining_losses(logits, features)
    masked_lm, next_sentence, lm_loss, ns_loss, total = reference.pretraining(weights, 3, 4, features)
    np.testing.assert_allclose(logits.masked_lm, masked_lm, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits.next_sentence, next_sentence, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(losses.masked_lm, lm_loss, rtol=1e-5)
    np.testing.assert_allclose(losses.next_sentence, ns_loss, rtol=1e-5)
    np.testing.assert_allclose(losses.total, total, rtol=1e-5)


def test_initial_weights():
    config = BertConfig.preset("tiny", vocab_size=3000)
    variables = variables_by_tf1_name(make_model(config))
    for name, variable in variables.items():
        values = keras.ops.convert_to_numpy(variable)
        if name.endswith("gamma"):
            assert (values == 1).all(), name
        elif name.endswith(("beta", "bias")):
            assert (values == 0).all(), name
        else:
            # A normal distribution truncated at two standard deviations keeps 0.88 of its standard deviation.
            assert abs(values).max() <= 0.04 + 1e-6, name
            assert values.std() == pytest.approx(0.0176, rel=0.1 if values.size > 1000 else 0.3), name
            assert abs(values.mean()) < 0.005, name


def test_dropout_follows_its_seed_alone():
    model = make_model()
    features = make_features()

    def scores(seed):
        return keras.ops.convert_to_numpy(model(features, seed=None if seed is None else np.array(seed)).masked_lm)

    np.testing.assert_array_equal(scores([1, 0]), scores([1, 0]))
    assert not np.allclose(scores([1, 0]), scores([2, 0]), atol=1e-4)
    assert not np.allclose(scores([1, 0]), scores(None), atol=1e-4)
    np.testing.assert_array_equal(scores(None), scores(None))


def test_prediction_weights_leave_out_unused_predictions():
    model = make_model()
    features = make_features()
    features["masked_lm_weights"][:, 2:] = 0
    logits = model(features)
    loss = pretraining_losses(logits, features).masked_lm
    features["masked_lm_ids"][:, 2:] = 0
    np.testing.assert_array_equal(loss, pretraining_losses(logits, features).masked_lm)
    features["masked_lm_weights"][:] = 0
    assert float(pretraining_losses(logits, features).masked_lm) == 0.0


def test_a_packed_row_has_the_losses_of_its_instances():
    model = make_model()
    weights = randomise(model)
    row, instances = packed_inputs([7, 9, 5], row_length=24)
    positions = np.array([[1, 6, 8, 15, 17, 20, 0, 0]])
    labels = {"masked_lm_ids": np.arange(8)[None] + 3, "masked_lm_weights": np.array([[1, 1, 1, 1, 1, 1, 0, 0.0]])}
    # The slot of a fourth pair is empty.
    row["next_sentence_positions"] = np.append(row["next_sentence_positions"], [[0]], axis=1)
    pairs = {
        "next_sentence_labels": np.array([[1, 0, 1, 0]]),
        "next_sentence_weights": np.array([[1, 1, 1, 0.0]]),
    }
    features = {**row, **labels, **pairs, "masked_lm_positions": positions}
    losses = pretraining_losses(model(features), features)
    masked_lm, next_sentence = [], []
    for index, (start, chosen) in enumerate([(0, [0, 1]), (7, [2, 3]), (16, [4, 5])]):
        alone = {
            **{name: values[None] for name, values in instances[index].items()},
            "masked_lm_positions": positions[:, chosen] - start,
            "masked_lm_ids": labels["masked_lm_ids"][:, chosen],
            "masked_lm_weights": np.ones((1, 2)),
            "next_sentence_labels": pairs["next_sentence_labels"][:, index : index + 1],
        }
        _, _, lm_loss, ns_loss, _ = reference.pretraining(weights, 3, 4, alone)
        masked_lm.append(lm_loss)
        next_sentence.append(ns_loss)
    np.testing.assert_allclose(losses.masked_lm, np.mean(masked_lm), rtol=1e-5)
    np.testing.assert_allclose(losses.next_sentence, np.mean(next_sentence), rtol=1e-5)
    np.testing.assert_allclose(losses.total, losses.masked_lm + losses.next_sentence, rtol=1e-6)
    np.testing.assert_allclose(losses.next_sentence_per_example[0, :3], next_sentence, rtol=1e-5)


def test_data_without_the_next_sentence_task():
    model = make_model()
    features = make_features()
    both = pretraining_losses(model(features), features)
    del features["next_sentence_labels"]
    losses = pretraining_losses(model(features), features)
    np.testing.assert_array_equal(losses.total, both.masked_lm)
    assert float(losses.next_sentence) == 0.0
    assert losses.next_sentence_per_example is None


@pytest.mark.parametrize(("vocab_size", "rows"), [(1, 128), (128, 128), (129, 256), (30522, 30592), (30592, 30592)])
def test_padded_size(vocab_size, rows):
    assert padded_size(vocab_size) == rows


def test_rows_that_pad_the_vocabulary_change_nothing():
    plain, padded = make_model(), BertForPretraining(CONFIG, pad_vocabulary=True)
    assert padded.encoder.embeddings.word_embeddings.shape == (128, 24)
    # The weights of the padding rows are so large that these rows would be predicted if they were included.
    for one, other in zip(randomise(plain).values(), randomise(padded).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    features = make_features()
    outcomes = []
    for model in (plain, padded):
        variables = {name: variable.value for name, variable in variables_by_tf1_name(model).items()}
        with tf.GradientTape() as tape:
            logits = model(features)
            losses = pretraining_losses(logits, features)
        gradients = tape.gradient(losses.total, variables)
        outcomes.append((logits.masked_lm, losses, {name: np.asarray(g) for name, g in gradients.items()}))
    (logits, losses, gradients), (padded_logits, padded_losses, padded_gradients) = outcomes
    np.testing.assert_allclose(padded_logits[..., :50], logits, atol=1e-6)
    assert (np.argmax(padded_logits, axis=-1) < 50).all()
    np.testing.assert_allclose(padded_losses.total, losses.total, rtol=1e-6)
    for name, gradient in gradients.items():
        given = padded_gradients[name]
        np.testing.assert_allclose(given[: len(gradient)], gradient, rtol=1e-4, atol=1e-6, err_msg=name)
        assert not given[len(gradient) :].any(), name


def test_predictions_with_causal_attention_do_not_depend_on_later_tokens():
    model = BertForPretraining(CONFIG, causal_attention=True)
    randomise(model)
    features = make_features()
    features["masked_lm_positions"][:] = [0, 2, 4, 5]
    scores = model(features).masked_lm
    features["input_ids"][:, 5] = (features["input_ids"][:, 5] + 1) % CONFIG.vocab_size
    changed = model(features).masked_lm
    np.testing.assert_allclose(changed[:, :3], scores[:, :3], atol=1e-6)
    assert not np.allclose(changed[:, 3], scores[:, 3], atol=1e-3)


def test_losses_are_float32_under_bfloat16():
    features = make_features()
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_model(BertConfig.preset("tiny", CONFIG.vocab_size))
        mixed = pretraining_losses(model(features), features)
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    exact_model = make_model(BertConfig.preset("tiny", CONFIG.vocab_size))
    exact = pretraining_losses(exact_model(features), features)
    for one, other in zip(mixed, exact, strict=True):
        assert one.dtype == "float32"
        np.testing.assert_allclose(one, other, rtol=0.02)


@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_takes_batches_of_any_size(packed):
    model = make_model()
    features = make_features()
    if packed:
        row, _ = packed_inputs([5, 6, 4], row_length=16)
        ones = {"next_sentence_labels": np.array([[1, 0, 1]]), "next_sentence_weights": np.ones((1, 3))}
        features = {**{name: values[:1] for name, values in features.items()}, **row, **ones}
    tensors = {
        name: tf.constant(values, tf.float32 if name.endswith("weights") else tf.int32)
        for name, values in features.items()
    }
    signature = {name: tf.TensorSpec([None, None], tensor.dtype) for name, tensor in tensors.items()}
    graph = tf.function(lambda given: pretraining_losses(model(given), given), input_signature=[signature])
    for result, wanted in zip(graph(tensors), pretraining_losses(model(features), features), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_cross_entropy_and_its_gradient_in_float64():
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 3, (4, 5, 30))
    # Differences that overflow exp, or underflow the probability of the label.
    logits[0, 0] *= 1000
    logits[0, 1, 3] = 500
    logits[0, 2] = -1e9
    labels = generator.integers(0, 30, (4, 5))
    labels[0, 1] = 4
    upstream = generator.normal(0, 1, (4, 5))
    upstream[1] = 0
    with tf.GradientTape() as tape:
        given = tf.constant(logits, tf.float32)
        tape.watch(given)
        losses = cross_entropy(given, labels)
    gradient = tape.gradient(losses, given, tf.constant(upstream, tf.float32))
    logits = logits.astype(np.float32).astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    wanted = (log_sum - np.take_along_axis(shifted, labels[..., None], -1))[..., 0]
    np.testing.assert_allclose(losses, wanted, rtol=1e-5, atol=1e-5)
    one_hot = np.eye(30)[labels]
    np.testing.assert_allclose(
        gradient, (np.exp(shifted - log_sum) - one_hot) * upstream[..., None], rtol=1e-4, atol=1e-6
    )
