"""Feed the batches of an input pipeline to TensorFlow, and trace an objective for each sequence length of a dataset."""

import dataclasses
import threading
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from beambert.pipelines.dataset import Dataset
from beambert.trainers.data.parsing import feature_lengths
from beambert.trainers.data.pipeline import Batches
from beambert.trainers.objective import Features, Objective, Sums

# Number of elements to prefetch. With autotuning, a busy machine may prefetch none.
_READ_AHEAD = 8


def dataset_of(batches: Batches, errors: list[Exception] | None = None) -> tf.data.Dataset:
    """Return batches as a dataset of dicts of tensors, which a background thread reads ahead of their use.

    Args:
        batches: the batches.
        errors: receives the error of the reader, which TensorFlow does not propagate.
    """
    reader = _Reader(batches, errors if errors is not None else [])
    dtypes = [tf.as_dtype(dtype) for _, dtype in batches.shapes.values()]

    def read(index: tf.Tensor) -> dict[str, tf.Tensor]:
        # The result depends only on the index. Without stateful=False, TensorFlow's op determinism disables
        # prefetching.
        tensors = tf.numpy_function(reader.read, [index], dtypes, stateful=False)
        return {
            name: tf.ensure_shape(tensor, shape)
            for tensor, (name, (shape, _)) in zip(tensors, batches.shapes.items(), strict=True)
        }

    options = tf.data.Options()
    # Each host reads its own input shard.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # Elements are read in order.
    options.experimental_optimization.map_parallelization = False
    return tf.data.Dataset.range(batches.count).map(read).prefetch(_READ_AHEAD).with_options(options)


class _Reader:
    """Read elements by index. Reading in order reads each record once; a jump starts a new iterator.

    Args:
        batches: the batches.
        errors: receives the error of the reader.
    """

    def __init__(self, batches: Batches, errors: list[Exception]) -> None:
        self._batches = batches
        self._errors = errors
        self._lock = threading.Lock()
        self._following: Iterator[dict[str, np.ndarray]] = iter(())
        self._next = -1
        self._error: Exception | None = None

    def read(self, index: np.int64) -> list[np.ndarray]:
        """Return the features of an element; after an error, every later call raises the same error."""
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                if index != self._next:
                    self._following = self._batches.from_index(int(index))
                self._next = int(index) + 1
                element = next(self._following)
                return [element[name] for name in self._batches.shapes]
            except Exception as error:
                self._error = error
                self._errors.append(error)
                raise


def with_static_lengths(objective: Objective, dataset: Dataset) -> Objective:
    """Return an objective whose metric sums are traced separately for each sequence length of a dataset.

    Args:
        objective: the objective.
        dataset: the manifest.

    Returns:
        An objective for batches with dynamic lengths (`beambert.trainers.data.pipeline.train_batches`), or the given
        objective if the dataset has a single sequence length.
    """
    shapes = sorted({(shard.max_seq_length, shard.max_predictions_per_seq) for shard in dataset.shards})
    if len(shapes) == 1:
        return objective
    row_lengths = tf.constant([row_length for row_length, _ in shapes])

    def sums(features: Features, seed: tf.Tensor | None) -> Sums:
        def sums_at(row_length: int, predictions: int) -> Sums:
            lengths = feature_lengths(dataset.instances_per_row, row_length, predictions)
            shaped = {
                name: tf.ensure_shape(value, [value.shape[0], lengths[name]]) if name in lengths else value
                for name, value in features.items()
            }
            return objective.sums(shaped, seed)

        if features["input_ids"].shape[1] is not None:
            return objective.sums(features, seed)
        length_index = tf.searchsorted(row_lengths, tf.shape(features["input_ids"])[1:])[0]
        return tf.switch_case(length_index, [lambda shape=shape: sums_at(*shape) for shape in shapes])

    return dataclasses.replace(objective, sums=sums)
