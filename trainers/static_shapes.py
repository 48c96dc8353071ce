"""Batches of several shapes, each computed by a graph of its own with every length known."""

import dataclasses

import tensorflow as tf

from pipelines.dataset import Dataset
from trainers.records import feature_lengths
from trainers.task import Features, Sums, Task


def with_static_lengths(task: Task, dataset: Dataset) -> Task:
    """The task, its sums traced once for each length of rows where the dataset has several.

    Args:
        task: what is trained.
        dataset: the manifest.

    Returns:
        A task for batches whose lengths are not known when it is traced (`trainers.input.train_batches`), or the task
        itself if all rows of the dataset have one length.
    """
    shapes = sorted({(shard.max_seq_length, shard.max_predictions_per_seq) for shard in dataset.shards})
    if len(shapes) == 1:
        return task
    row_lengths = tf.constant([row_length for row_length, _ in shapes])

    def sums(features: Features, seed: tf.Tensor | None) -> Sums:
        def sums_at(row_length: int, predictions: int) -> Sums:
            lengths = feature_lengths(dataset, row_length, predictions)
            shaped = {
                name: tf.ensure_shape(value, [value.shape[0], lengths[name]]) if name in lengths else value
                for name, value in features.items()
            }
            return task.sums(shaped, seed)

        if features["input_ids"].shape[1] is not None:
            return task.sums(features, seed)
        which = tf.searchsorted(row_lengths, tf.shape(features["input_ids"])[1:])[0]
        return tf.switch_case(which, [lambda shape=shape: sums_at(*shape) for shape in shapes])

    return dataclasses.replace(task, sums=sums)
