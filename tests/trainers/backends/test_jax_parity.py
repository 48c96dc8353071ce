"""Test that the JAX backend computes the steps of the TensorFlow backend: 20 steps of pretraining and of every head."""

import functools

import numpy as np
import pytest

from tests.conftest import with_slow
from tests.trainers.backends.device_runs import made

STEPS = {"batch_size": 16, "steps": 20}
HEADS = (
    "classification",
    "regression",
    "multiple_choice",
    "span",
    "token_classification",
    "token_classification_bilstm",
)
PRETRAINING = {
    "next_sentence": {},
    "packed": {"packed": True},
    "dynamic_masks": {"dynamic": True},
    "accumulation": {"accumulation": 4},
    "no_next_sentence": {"no_next_sentence": True, "optimizer": "lamb"},
    "clipping_per_replica": {"clip_per_replica": True, "optimizer": "adamw"},
    "activation_checkpointing": {"checkpointing": "layer"},
}
FINETUNING = {head: {"head": head} for head in HEADS} | {"multi_label": {"head": "classification", "multi_label": True}}
CASES = PRETRAINING | FINETUNING
# Their options are in the other cases, or are tested within a backend.
SLOW = (
    "accumulation",
    "dynamic_masks",
    "clipping_per_replica",
    "activation_checkpointing",
    "regression",
    "multiple_choice",
    "span",
    "token_classification",
    "multi_label",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A function from the name of a case to its values under JAX and under TensorFlow."""

    @functools.cache
    def values_of(slow):
        names = [name for name in CASES if (name in SLOW) == slow]
        directory = tmp_path_factory.mktemp("both")
        cases = [{**STEPS, **CASES[name]} for name in names]
        jax, tensorflow = (made(directory, backend, 1, *cases) for backend in ("jax", "tensorflow"))
        return dict(zip(names, zip(jax, tensorflow, strict=True), strict=True))

    return lambda name: values_of(name in SLOW)[name]


@pytest.mark.parametrize("name", with_slow(CASES, SLOW))
def test_twenty_steps_equal_those_of_tensorflow(both, name):
    jax, tensorflow = both(name)
    assert jax.keys() == tensorflow.keys()
    for key, value in tensorflow.items():
        if key.startswith(("metric/", "evaluation/")):
            np.testing.assert_allclose(jax[key], value, rtol=1e-4, atol=1e-4, err_msg=key)
        elif not key.endswith(("adam_m", "adam_v")):
            difference = np.abs(jax[key] - value)
            # The gradients of some biases are 0 in theory and noise in both backends. These are the biases of keys, and
            # those that add the same value to the scores of all choices or positions. The bound is 1/200 of the maximum
            # change of 20 steps.
            if f"{key}/adam_v" in tensorflow and tensorflow[f"{key}/adam_v"].max() < 1e-12:
                assert difference.max() < 1e-4, key
            else:
                assert np.linalg.norm(difference) / np.linalg.norm(value) < 1e-5, key
    assert jax["metric/loss"][1] == 20


def test_a_variable_without_gradient_is_unchanged_by_weight_decay(both):
    # Without the next-sentence loss, no loss depends on the pooler and the next-sentence head.
    for values in both("no_next_sentence"):
        unused = [name for name in values if name.startswith(("bert/pooler", "cls/seq_relationship"))]
        assert len(unused) == 12
        assert all(not values[name].any() for name in unused if name.endswith(("adam_m", "adam_v")))
    jax, trained = both("no_next_sentence")[0], both("next_sentence")[0]
    name = "bert/pooler/dense/kernel"
    assert not np.array_equal(jax[name], trained[name])
