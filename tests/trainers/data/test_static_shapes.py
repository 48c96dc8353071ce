"""Tests of batches of several shapes: every graph has static lengths and computes the same as the objective itself."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from beambert.pipelines.dataset import load
from beambert.pipelines.errors import DatasetError
from beambert.trainers.backends.tensorflow.input import dataset_of, with_static_lengths
from beambert.trainers.commands import pretrain
from beambert.trainers.data.pipeline import train_batches
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.schedule import Stage
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, write_dataset

BINS = dataclasses.replace(OPTIONS, length_bins=(8, LENGTH))


def test_every_length_is_traced_once_and_computes_the_same(tmp_path):
    dataset = write_dataset(tmp_path, options=BINS)
    table = tf.Variable(np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32))
    traced = []

    def sums(features, seed):
        traced.append([features["input_ids"].shape.as_list(), features["masked_lm_ids"].shape.as_list()])
        vectors = tf.gather(table, features["input_ids"])
        total = tf.reduce_sum(vectors**2) + tf.reduce_sum(features["masked_lm_weights"]) + tf.cast(seed[0], tf.float32)
        return {"rows": (total * 2, tf.constant(4.0)), "weight": (tf.reduce_sum(features["example_weights"]), 1.0)}

    task = Objective({"table": table}, sums, lambda features: {"rows": tf.constant(4.0)})
    train = dataset_of(train_batches(tmp_path, dataset, [Stage(0, 4, 0, 6, 0)], 0, seed=1))
    batches = train.map(lambda features: {**features, "example_weights": tf.ones([4])})

    @tf.function
    def step(features):
        with tf.GradientTape() as tape:
            of_step = with_static_lengths(task, dataset).sums(features, tf.constant([3, 0]))
        return of_step, tf.convert_to_tensor(tape.gradient(of_step["rows"][0], table))

    step = step.get_concrete_function(batches.element_spec)
    assert traced == [[[4, 8], [4, 1]], [[4, LENGTH], [4, 4]]]
    lengths = set()
    for features in batches:
        lengths.add(features["input_ids"].shape[1])
        of_step, gradient = step(features)
        with tf.GradientTape() as tape:
            expected = sums(features, tf.constant([3, 0]))
        np.testing.assert_allclose(of_step["rows"], expected["rows"], rtol=1e-6)
        assert float(of_step["weight"][0]) == 4.0
        np.testing.assert_allclose(gradient, tf.convert_to_tensor(tape.gradient(expected["rows"][0], table)), rtol=1e-6)
    assert lengths == {8, LENGTH}


def test_a_task_for_rows_of_one_length_stays_as_it_is(tmp_path):
    task = Objective({}, lambda features, seed: {}, lambda features: {})
    assert with_static_lengths(task, write_dataset(tmp_path)) is task


def test_parquet_is_refused_before_anything_is_written(data, options, tmp_path):
    (data / "dataset.json").write_text(dataclasses.replace(load(data), file_format="parquet").to_json())
    with pytest.raises(DatasetError, match=r"contains parquet shards, .* build the data again with --format tfrecord"):
        pretrain.run(options())
    assert not (tmp_path / "output").exists()
