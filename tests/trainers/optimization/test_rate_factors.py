import pytest

from beambert.bert_model.checkpoints.variable_names import variable_names
from beambert.bert_model.config import BertConfig
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.optimizers import is_decayed, rate_factors
from beambert.trainers.options import OptimizerOptions

CONFIG = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16)
NAMES = [name.tf1 for name in variable_names(CONFIG)]
CLASSIFIER_NAMES = [name.tf1 for name in variable_names(CONFIG, "classification", 2)]


def test_which_variables_decay():
    decayed = ["bert/embeddings/word_embeddings", "bert/encoder/layer_0/output/dense/kernel", "output_weights"]
    kept = ["bert/embeddings/LayerNorm/gamma", "a/layer_norm/gamma", "cls/predictions/output_bias", "x/dense/bias"]
    assert [is_decayed(name) for name in decayed] == [True] * 3
    assert [is_decayed(name) for name in kept] == [False] * 4


def test_every_matrix_of_a_model_decays_and_no_vector():
    for name in variable_names(CONFIG):
        assert is_decayed(name.tf1) == (len(name.shape) == 2), name.tf1


@pytest.mark.parametrize("names", [NAMES, CLASSIFIER_NAMES])
def test_the_rate_falls_from_layer_to_layer(names):
    factors = rate_factors(names, OptimizerOptions(layerwise_lr_decay=0.5))
    assert list(factors) == names
    of_start = {
        "bert/embeddings/": 0.0625,
        "bert/encoder/layer_0/": 0.125,
        "bert/encoder/layer_1/": 0.25,
        "bert/encoder/layer_2/": 0.5,
        "bert/pooler/": 1.0,
        "cls/": 1.0,
        "output_": 1.0,
    }
    for name, factor in factors.items():
        assert [factor] == [expected for start, expected in of_start.items() if name.startswith(start)], name
    assert set(rate_factors(names, OptimizerOptions()).values()) == {1.0}


def test_more_than_ten_layers_are_told_apart():
    names = [f"bert/encoder/layer_{layer}/output/dense/kernel" for layer in range(12)]
    factors = rate_factors(names, OptimizerOptions(layerwise_lr_decay=0.5))
    assert list(factors.values()) == [0.5 ** (12 - layer) for layer in range(12)]


def test_the_first_matching_multiplier_applies():
    options = OptimizerOptions(lr_multiplier=(("layer_1/attention", 3.0), ("^bert/encoder", 0.0), ("bias$", 5.0)))
    factors = rate_factors(NAMES, options)
    assert factors["bert/encoder/layer_1/attention/self/query/bias"] == 3.0
    assert factors["bert/encoder/layer_1/output/dense/bias"] == 0.0
    assert factors["cls/predictions/output_bias"] == 5.0
    assert factors["bert/pooler/dense/kernel"] == 1.0


def test_multiplier_and_layerwise_decay_are_combined():
    options = OptimizerOptions(layerwise_lr_decay=0.5, lr_multiplier=(("layer_2/", 10.0),))
    assert rate_factors(NAMES, options)["bert/encoder/layer_2/output/dense/kernel"] == 5.0


@pytest.mark.parametrize("multipliers", [(("layer_3/", 0.5),), (("layer_1/", 0.5), ("layer_1/output", 2.0))])
def test_a_multiplier_that_changes_nothing_is_a_mistake(multipliers):
    with pytest.raises(TrainingError, match=f"invalid --lr_multiplier {multipliers[-1][0]}: matches no variable"):
        rate_factors(NAMES, OptimizerOptions(lr_multiplier=multipliers))
