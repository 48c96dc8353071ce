"""Test the outputs of the current model with TensorFlow."""

import numpy as np
import tensorflow as tf

from beambert.trainers.backends.tensorflow.distribution import Distribution
from beambert.trainers.backends.tensorflow.runtime import outputs_of
from tests.trainers.small_runs import batches_of, for_all


def test_batches_of_many_widths_are_not_traced_each():
    traced = []

    def row_sums(features):
        traced.append(features["input_ids"].shape)
        return tf.reduce_sum(features["input_ids"], axis=1)

    run = outputs_of(row_sums, [], Distribution())
    elements = [{"input_ids": np.full((2, width), 3, np.int32)} for width in range(4, 14)]
    for _ in range(2):
        found = list(run(for_all(batches_of(elements))))
        np.testing.assert_array_equal(found, [[3 * width] * 2 for width in range(4, 14)])
    # One trace for the first width, and one for all others.
    assert len(traced) == 2
