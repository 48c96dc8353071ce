"""Parse records of pretraining data into tensors, as the manifest describes them.

Batches of different shapes are computed by separate graphs with static lengths.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from pipelines.dataset import Dataset
from trainers.objective import Features, Objective, Sums


def feature_lengths(dataset: Dataset, row_length: int, predictions: int) -> dict[str, int]:
    """Return the number of values of each possible feature in a padded row, by feature name."""
    return {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids", "sequence_ids"), row_length),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), predictions),
        **dict.fromkeys(
            ("next_sentence_labels", "next_sentence_positions", "next_sentence_weights"), dataset.instances_per_row
        ),
    }


def parser(dataset: Dataset, row_length: int, predictions: int) -> Callable[[tf.Tensor], Features]:
    """Return a parser for batches of records with the same sequence length.

    Args:
        dataset: the manifest, with the features, their names in the files, and whether padding is omitted.
        row_length: L, the sequence length.
        predictions: P, the maximum number of predictions per row.

    Returns:
        A function from serialized records, string [B], to the dataset's features by their internal names
        (`PretrainingDataOptions.names_of_features`), padded with zeros. Possible features are input_ids, input_mask,
        segment_ids and sequence_ids, int32 [B, L]; masked_lm_positions and masked_lm_ids, int32 [B, P];
        masked_lm_weights, float32 [B, P]; next_sentence_labels and next_sentence_positions, int32 [B, K]; and
        next_sentence_weights, float32 [B, K], with K instances per row.
    """
    lengths = feature_lengths(dataset, row_length, predictions)
    dtypes = {name: tf.float32 if name.endswith("_weights") else tf.int64 for name in dataset.features}
    spec = {
        in_file: tf.io.RaggedFeature(dtypes[name])
        if dataset.ragged
        else tf.io.FixedLenFeature([lengths[name]], dtypes[name])
        for name, in_file in dataset.features.items()
    }

    def parse(serialized: tf.Tensor) -> Features:
        parsed = tf.io.parse_example(serialized, spec)
        features = {}
        for name, in_file in dataset.features.items():
            values = parsed[in_file]
            if dataset.ragged:
                values = values.to_tensor(shape=[None, lengths[name]])
            # 64-bit integers are slow on accelerators.
            features[name] = tf.cast(values, tf.int32) if dtypes[name] == tf.int64 else values
        return features

    return parse


def with_static_lengths(task: Objective, dataset: Dataset) -> Objective:
    """Return an objective whose metric sums are traced separately for each sequence length of a dataset.

    Args:
        task: the objective.
        dataset: the manifest.

    Returns:
        An objective for batches with dynamic lengths (`trainers.data.pipeline.train_batches`), or the given objective
        if the dataset has a single sequence length.
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
        length_index = tf.searchsorted(row_lengths, tf.shape(features["input_ids"])[1:])[0]
        return tf.switch_case(length_index, [lambda shape=shape: sums_at(*shape) for shape in shapes])

    return dataclasses.replace(task, sums=sums)
