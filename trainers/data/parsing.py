"""Parse records of pretraining data to tensors, by the dataset's options.

Batches of several shapes are each computed by a graph of their own in which every length is known.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from pipelines.dataset import Dataset
from trainers.objective import Features, Objective, Sums


def feature_lengths(dataset: Dataset, row_length: int, predictions: int) -> dict[str, int]:
    """Return the number of values of each possible feature in a padded row."""
    return {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids", "sequence_ids"), row_length),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), predictions),
        **dict.fromkeys(
            ("next_sentence_labels", "next_sentence_positions", "next_sentence_weights"), dataset.instances_per_row
        ),
    }


def parser(dataset: Dataset, row_length: int, predictions: int) -> Callable[[tf.Tensor], Features]:
    """Return a parser for a batch of records whose rows have one length.

    Args:
        dataset: the manifest: which features there are, their names in the files, and whether padding is left out.
        row_length: L.
        predictions: P, room for masked tokens in a row.

    Returns:
        A function from serialized records, string [B], to those of these features that the dataset has, by our names
        (`PretrainingDataOptions.names_of_features`), padded with zeros where the records are not: input_ids,
        input_mask, segment_ids, sequence_ids int32 [B, L]; masked_lm_positions, masked_lm_ids int32 and
        masked_lm_weights float32 [B, P]; next_sentence_labels, next_sentence_positions int32 and
        next_sentence_weights float32 [B, K] with room for K instances in a row.
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
            # Accelerators have no 64-bit integers worth using.
            features[name] = tf.cast(values, tf.int32) if dtypes[name] == tf.int64 else values
        return features

    return parse


def with_static_lengths(task: Objective, dataset: Dataset) -> Objective:
    """Return the task, its metric sums traced once for each length of rows where the dataset has several.

    Args:
        task: what is trained.
        dataset: the manifest.

    Returns:
        A task for batches whose lengths are not known when it is traced (`trainers.data.pipeline.train_batches`), or
        the task itself if all rows of the dataset have one length.
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
