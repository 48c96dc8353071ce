"""Batches of several shapes: every graph knows its lengths, and computes what the task itself would."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from pretraining_shards import LENGTH, OPTIONS, write_dataset

from pipelines.dataset import DatasetError, load
from trainers import pretrain
from trainers.input import train_batches
from trainers.loop import Task
from trainers.static_shapes import with_static_lengths

BINS = dataclasses.replace(OPTIONS, length_bins=(8, LENGTH))


def test_every_length_is_traced_once_and_computes_the_same(tmp_path):
    dataset = write_dataset(tmp_path, options=BINS)
    table = tf.Variable(np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32))
    traced = []

    def loss(features, seed):
        traced.append([features["input_ids"].shape.as_list(), features["masked_lm_ids"].shape.as_list()])
        vectors = tf.gather(table, features["input_ids"])
        total = tf.reduce_sum(vectors**2) + tf.reduce_sum(features["masked_lm_weights"]) + tf.cast(seed[0], tf.float32)
        return total, {"rows": (total * 2, tf.constant(4.0))}

    task = Task({"table": table}, loss)
    batches = train_batches(tmp_path, dataset, 4, seed=1)

    @tf.function
    def step(features):
        with tf.GradientTape() as tape:
            total, sums = with_static_lengths(task, dataset).loss(features, tf.constant([3, 0]))
        return total, sums, tf.convert_to_tensor(tape.gradient(total, table))

    step = step.get_concrete_function(batches.element_spec)
    assert traced == [[[4, 8], [4, 1]], [[4, LENGTH], [4, 4]]]
    lengths = set()
    for features in itertools.islice(batches, 6):
        lengths.add(features["input_ids"].shape[1])
        total, sums, gradient = step(features)
        with tf.GradientTape() as tape:
            expected, expected_sums = loss(features, tf.constant([3, 0]))
        np.testing.assert_allclose(total, expected, rtol=1e-6)
        np.testing.assert_allclose(sums["rows"], expected_sums["rows"], rtol=1e-6)
        np.testing.assert_allclose(gradient, tf.convert_to_tensor(tape.gradient(expected, table)), rtol=1e-6)
    assert lengths == {8, LENGTH}


def test_a_task_for_rows_of_one_length_stays_as_it_is(tmp_path):
    task = Task({}, lambda features, seed: (tf.constant(0.0), {}))
    assert with_static_lengths(task, write_dataset(tmp_path)) is task


def test_a_run_on_several_lengths_without_masks_of_their_own(data, options, tmp_path):
    write_dataset(data, options=dataclasses.replace(BINS, masking="dynamic", ragged=False))
    assert pretrain.run(options("--num_train_steps", "5")) == 0
    results = (tmp_path / "output" / "eval_results.txt").read_text(encoding="utf-8")
    assert "masked_lm_loss = " in results


def test_parquet_is_refused_before_anything_is_written(data, options, tmp_path):
    (data / "dataset.json").write_text(dataclasses.replace(load(data), file_format="parquet").to_json())
    with pytest.raises(DatasetError, match=r"holds parquet files, .* build it again with --format tfrecord"):
        pretrain.run(options())
    assert not (tmp_path / "output").exists()
