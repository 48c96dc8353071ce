import keras
import numpy as np
import pytest
import reference

from bert_model.config import BertConfig
from bert_model.names import variables_by_tf1_name
from bert_model.pretraining import BertForPretraining, pretraining_losses

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=20,
)


def make_model(config=CONFIG, seed=1):
    keras.utils.set_random_seed(seed)
    return BertForPretraining(config)


def make_features(batch=5, length=16, predictions=4, seed=0):
    generator = np.random.default_rng(seed)
    real = generator.integers(length // 2, length, batch)
    return {
        "input_ids": generator.integers(0, CONFIG.vocab_size, (batch, length)),
        "input_mask": (np.arange(length) < real[:, None]).astype(np.int32),
        "segment_ids": generator.integers(0, 2, (batch, length)),
        "masked_lm_positions": generator.integers(0, length // 2, (batch, predictions)),
        "masked_lm_ids": generator.integers(0, CONFIG.vocab_size, (batch, predictions)),
        "masked_lm_weights": generator.integers(0, 2, (batch, predictions)).astype(np.float32),
        "next_sentence_labels": generator.integers(0, 2, (batch, 1)),
    }


def test_agrees_with_the_reference_in_float64():
    model = make_model()
    generator = np.random.default_rng(2)
    variables = variables_by_tf1_name(model)
    for variable in variables.values():
        # Far from the initial zeros and ones, so that every variable and every nonlinearity counts.
        variable.assign(generator.normal(0, 0.4, variable.shape))
    weights = {name: keras.ops.convert_to_numpy(variable).astype(np.float64) for name, variable in variables.items()}
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
            # A normal cut at two standard deviations keeps 0.88 of its deviation.
            assert abs(values).max() <= 0.04 + 1e-6, name
            assert values.std() == pytest.approx(0.0176, rel=0.1 if values.size > 1000 else 0.3), name
            assert abs(values.mean()) < 0.005, name


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (variables_by_tf1_name(make_model(seed=seed)) for seed in (3, 3, 4))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert any(
        (keras.ops.convert_to_numpy(first[name]) != keras.ops.convert_to_numpy(other[name])).any() for name in first
    )


def test_padding_does_not_influence_real_positions():
    model = make_model()
    features = make_features()
    padding = features["input_mask"] == 0
    other = dict(features)
    other["input_ids"] = np.where(padding, (features["input_ids"] + 7) % CONFIG.vocab_size, features["input_ids"])
    other["segment_ids"] = np.where(padding, 1 - features["segment_ids"], features["segment_ids"])
    first, second = model(features), model(other)
    np.testing.assert_allclose(first.masked_lm, second.masked_lm, atol=1e-6)
    np.testing.assert_allclose(first.next_sentence, second.next_sentence, atol=1e-6)
    unmasked = {**other, "input_mask": np.ones_like(padding, dtype=np.int32)}
    assert not np.allclose(first.masked_lm, model(unmasked).masked_lm, atol=1e-4)


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
