"""Tests of batches as a tf.data dataset: the same elements, static shapes, prefetching, and the original errors."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from beambert.trainers.backends.tensorflow.distribution import Distribution
from beambert.trainers.backends.tensorflow.input import dataset_of
from beambert.trainers.data.pipeline import Batches
from beambert.trainers.errors import TrainingError

SHAPES = {"ids": ((2, None), np.dtype(np.int32)), "weights": ((2,), np.dtype(np.float32))}


def element(index):
    return {"ids": np.full((2, index + 1), index, np.int32), "weights": np.array([index, 0.5], np.float32)}


def counting(count):
    return Batches(count, SHAPES, lambda first: map(element, range(first, count)))


def test_a_dataset_has_the_elements_of_its_batches():
    dataset = dataset_of(counting(20))
    assert {name: (spec.shape.as_list(), spec.dtype) for name, spec in dataset.element_spec.items()} == {
        "ids": ([2, None], tf.int32),
        "weights": ([2], tf.float32),
    }
    # Read twice, by two iterators at the same time.
    for _ in range(2):
        pairs = list(zip(dataset, dataset, strict=True))
        assert len(pairs) == 20
        for index, pair in enumerate(pairs):
            for features in pair:
                np.testing.assert_array_equal(features["ids"], element(index)["ids"])
                np.testing.assert_array_equal(features["weights"], element(index)["weights"])


def test_an_element_unlike_the_shapes_is_an_error():
    wrong = Batches(1, SHAPES, lambda first: iter([{**element(0), "weights": np.zeros(3, np.float32)}]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[3\].* \[2\]"):
        list(dataset_of(wrong))


def test_elements_are_read_ahead_of_their_use():
    # Deterministic operations, which every run uses, prevent TensorFlow from prefetching stateful functions.
    tf.config.experimental.enable_op_determinism()
    third_is_read = threading.Event()

    def from_index(first):
        for index in range(first, 20):
            if index == 2:
                third_is_read.set()
            yield element(index)

    iterator = iter(dataset_of(Batches(20, SHAPES, from_index)))
    next(iterator)
    assert third_is_read.wait(60)


def failing(error):
    def from_index(first):
        for index in range(first, 10):
            if index == 3:
                raise error
            yield element(index)

    return Batches(10, SHAPES, from_index)


def test_the_original_error_is_raised_outside_the_graph(capfd):
    distribution = Distribution()
    error = TrainingError("the third element is missing")

    @tf.function
    def read_all(iterator):
        for _ in tf.range(10):
            next(iterator)

    with pytest.raises(TrainingError) as raised, distribution.batches(lambda share: failing(error)) as batches:
        read_all(iter(batches))
    assert raised.value is error
    with pytest.raises(TrainingError) as raised, distribution.batches(lambda share: failing(error)) as batches:
        list(batches)
    assert raised.value is error
    # Errors of TensorFlow are unchanged.
    with pytest.raises(tf.errors.InvalidArgumentError), distribution.batches(lambda share: counting(10)):
        tf.debugging.assert_equal(1, tf.constant(2))
    assert capfd.readouterr().err == ""
