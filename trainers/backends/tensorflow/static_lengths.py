"""Trace the sums of an objective separately for each sequence length of a dataset.

Batches of different shapes are computed by separate graphs with static lengths.
"""

import dataclasses

import tensorflow as tf

from beambert.pipelines.dataset import Dataset
from beambert.trainers.data.parsing import feature_lengths
from beambert.trainers.objective import Features, Objective, Sums


def with_static_lengths(task: Objective, dataset: Dataset) -> Objective:
    """Return an objective whose metric sums are traced separately for each sequence length of a dataset.

    Args:
        task: the objective.
        dataset: the manifest.

    Returns:
        An objective for batches with dynamic lengths (`beambert.trainers.data.pipeline.train_batches`), or the given
        objective if the dataset has a single sequence length.
    """
    shapes = sorted({(shard.max_seq_length, shard.max_predictions_per_seq) for shard in dataset.shards})
    if len(shapes) == 1:
        return task
    row_lengths = tf.constant([row_length for row_length, _ in shapes])

    def sums(features: Features, seed: tf.Tensor | None) -> Sums:
        def sums_at(row_length: int, predictions: int) -> Sums:
            lengths = feature_lengths(dataset.instances_per_row, row_length, predictions)
            shaped = {
                name: tf.ensure_shape(value, [value.shape[0], lengths[name]]) if name in lengths else value
                for name, value in features.items()
            }
            return task.sums(shaped, seed)

        if features["input_ids"].shape[1] is not None:
            return task.sums(features, seed)
        length_index = tf.searchsorted(row_lengths, tf.shape(features["input_ids"])[1:])[0]
        return tf.switch_case(length_index, [lambda shape=shape: sums_at(*shape) for shape in shapes])

    return dataclasses.replace(task, sums=sums)
