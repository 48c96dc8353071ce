"""Test that initial weights depend on the seed alone, not on other threads that draw from `random`."""

import random

import keras
import numpy as np
import pytest

from beambert.bert_model.checkpoints.variable_names import variables_by_tf1_name
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.layers import seeded_initialization
from beambert.bert_model.pretraining import BertForPretraining
from tests.bert_model.small_models import CONFIG

MODELS = {
    "pretraining": lambda: BertForPretraining(CONFIG),
    "classification": lambda: BertForTask(CONFIG, "classification", 3),
    "token_classification_bilstm": lambda: BertForTask(CONFIG, "token_classification_bilstm", 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_seed_and_no_shared_generator_is_used(name):
    def weights():
        return {key: np.asarray(variable) for key, variable in variables_by_tf1_name(MODELS[name]()).items()}

    keras.utils.set_random_seed(7)
    expected = weights()
    state = random.getstate()
    with seeded_initialization(7):
        found = weights()
    assert random.getstate() == state
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)
