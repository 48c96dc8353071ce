"""Build the input pipeline of pretraining: order, read, parse and mask examples.

Python reads the records in order; the graph parses them in parallel and ahead of use.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.dataset import Dataset, Shard
from pipelines.errors import DatasetError
from trainers.data.dynamic_masking import DynamicMasking, mask_batch
from trainers.data.example_order import TRAIN_MASKS, VALIDATION_MASKS, blocks_in_order, step_examples, train_blocks
from trainers.data.parsing import feature_lengths, parser
from trainers.data.shard_reader import CorruptRecordPolicy, RecordStream
from trainers.data.stateless_random import stateless_hash
from trainers.data.verification import check_sizes
from trainers.objective import Features
from trainers.optimization.schedule import Stage

# Number of elements to prefetch. With autotuning, a busy machine may prefetch none.
_READ_AHEAD = 16


class _Element(NamedTuple):
    """The examples of one replica and step.

    Attributes:
        length_index: index of the sequence length, from the shortest, int32.
        keys: uint64 [b], hash keys from which masks are drawn.
        records: string [b], serialized examples.
        weights: float32 [b], 0 for an example that pads the batch.
    """

    length_index: np.int32
    keys: np.ndarray
    records: np.ndarray
    weights: np.ndarray


def train_batches(
    directory: Path,
    dataset: Dataset,
    stages: Sequence[Stage],
    step: int,
    seed: int,
    *,
    replicas: int = 1,
    first_replica: int = 0,
    local_replicas: int = 1,
    pad_rows: bool = False,
    corrupt_records: CorruptRecordPolicy | None = None,
) -> tf.data.Dataset:
    """Return the batches of the training split from a step to the end of its stage.

    The examples of a step and their order depend only on seed and stages (`trainers.data.example_order`). So do dynamic
    masks (`--masking dynamic`), which are drawn for every position of the order and every epoch.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        stages: stages that read this directory, from the first one to the stage of `step`.
        step: first step.
        seed: an integer below 2**31.
        replicas: number of replicas; it must divide the batch size.
        first_replica, local_replicas: the replicas to read for, as in `InputShard`.
        pad_rows: whether to pad all sequences to the longest length, so that all batches have one shape.
        corrupt_records: action at corrupt records; None raises an error.

    Returns:
        A dataset of dicts of features (`trainers.data.parsing.parser`), always with masked_lm_*: for each step, an
        element [batch_size / replicas, ...] per local replica. Sequence length and number of predictions are static
        unless they differ by step. Iterate it within `reading_errors`.

    Raises:
        DatasetError: there are no training examples, or a shard is missing or truncated.
    """
    shards = [shard for shard in dataset.shards_of("train") if shard.examples]
    if not shards:
        raise DatasetError(f"{directory} has no training examples; build the data from more text")
    check_sizes(directory, shards)
    lengths = _by_row_length(shards)
    examples = [sum(shard.examples for shard in of_length) for of_length in lengths]
    corrupt_records = corrupt_records or CorruptRecordPolicy()
    part = stages[-1].batch_size // replicas

    keys_of = [int(stateless_hash(seed, TRAIN_MASKS, of_length[0].max_seq_length)[0]) for of_length in lengths]

    def elements(beginning: int) -> Iterator[_Element]:
        streams: dict[int, RecordStream] = {}
        skipped_steps, skipped_replicas = divmod(beginning, local_replicas)
        for examples_of_step in step_examples(stages, step + skipped_steps, examples, seed):
            of_length = lengths[examples_of_step.length_index]
            for replica in range(first_replica + skipped_replicas, first_replica + local_replicas):
                first = examples_of_step.first + replica * part
                if examples_of_step.length_index not in streams:
                    blocks = train_blocks(of_length, seed, first)
                    streams[examples_of_step.length_index] = RecordStream(directory, dataset, blocks, corrupt_records)
                records = streams[examples_of_step.length_index].read(first, part, examples_of_step.step)
                keys = stateless_hash(keys_of[examples_of_step.length_index], first + np.arange(part))
                yield _element(examples_of_step.length_index, keys, records, part)
            skipped_replicas = 0

    count = (stages[-1].end_step - step) * local_replicas
    return _batches(elements, count, part, corrupt_records, _features_of(directory, dataset, lengths, pad_rows))


def validation_batches(
    directory: Path,
    dataset: Dataset,
    batch_size: int,
    max_batches: int,
    *,
    replicas: int = 1,
    first_replica: int = 0,
    local_replicas: int = 1,
    pad_rows: bool = False,
    corrupt_records: CorruptRecordPolicy | None = None,
) -> tf.data.Dataset | None:
    """Return the first batches of the validation split, copy 0, each example once, in manifest order.

    Dynamic masks (`--masking dynamic`) are the same in every evaluation and do not depend on the batch size.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        batch_size: global batch size in sequences.
        max_batches: maximum number of batches.
        replicas, first_replica, local_replicas, pad_rows, corrupt_records: as in `train_batches`.

    Returns:
        A dataset as of `train_batches` with the additional feature example_weights, float32 [batch_size / replicas].
        All batches are full; the last batch of each sequence length is padded with examples of weight 0, which have no
        predictions. None without validation examples.

    Raises:
        DatasetError: a shard is missing or truncated.
    """
    shards = [shard for shard in dataset.shards_of("validation") if shard.copy == 0 and shard.examples]
    if not shards:
        return None
    check_sizes(directory, shards)
    lengths = _by_row_length(shards)
    examples = [sum(shard.examples for shard in of_length) for of_length in lengths]
    corrupt_records = corrupt_records or CorruptRecordPolicy()
    part = batch_size // replicas
    ends = []
    for index, number in enumerate(examples):
        count = -(-number // batch_size)
        ends += [((batch + 0.5) / count, index, batch) for batch in range(count)]
    # Interleave the sequence lengths, so that the first batches are representative.
    batches = [(index, batch) for _, index, batch in sorted(ends)][:max_batches]

    keys_of = [int(stateless_hash(0, VALIDATION_MASKS, of_length[0].max_seq_length)[0]) for of_length in lengths]

    def elements(beginning: int) -> Iterator[_Element]:
        streams = [
            RecordStream(directory, dataset, blocks_in_order(of_length), corrupt_records) for of_length in lengths
        ]
        fillers = [stream.read(0, 1, 0) for stream in streams]
        for number in range(beginning, len(batches) * local_replicas):
            step, replica = divmod(number, local_replicas)
            index, batch = batches[step]
            first = batch * batch_size + (first_replica + replica) * part
            real = min(max(examples[index] - first, 0), part)
            records = streams[index].read(first, real, step)
            keys = stateless_hash(keys_of[index], first + np.arange(part))
            yield _element(index, keys, records + fillers[index] * (part - real), real)

    features_of = _features_of(directory, dataset, lengths, pad_rows)

    def weighted(element: _Element) -> Features:
        features = features_of(element)
        for name in {"masked_lm_weights", "next_sentence_weights"} & features.keys():
            features[name] *= element.weights[:, None]
        return {**features, "example_weights": element.weights}

    return _batches(elements, len(batches) * local_replicas, part, corrupt_records, weighted)


@contextmanager
def reading_errors(corrupt_records: CorruptRecordPolicy) -> Iterator[None]:
    """Raise the original error of the reader in place of TensorFlow's error, while the body runs."""
    try:
        yield
    except tf.errors.OpError as error:
        if corrupt_records.error is not None:
            raise corrupt_records.error from error
        raise


def _by_row_length(shards: list[Shard]) -> list[list[Shard]]:
    lengths = sorted({shard.max_seq_length for shard in shards})
    return [[shard for shard in shards if shard.max_seq_length == length] for length in lengths]


def _element(length_index: int, keys: np.ndarray, records: list[bytes], real: int) -> _Element:
    weights = (np.arange(len(records)) < real).astype(np.float32)
    return _Element(np.int32(length_index), keys, np.array(records, object), weights)


class _Reader:
    """Read elements by index. Reading in order reads each record once; a jump starts a new iterator.

    Args:
        elements: function of an index; returns an iterator from that element on.
        corrupt_records: receives the error of the reader.
    """

    def __init__(self, elements: Callable[[int], Iterator[_Element]], corrupt_records: CorruptRecordPolicy) -> None:
        self._elements = elements
        self._corrupt_records = corrupt_records
        self._lock = threading.Lock()
        self._following: Iterator[_Element] = iter(())
        self._next = -1
        self._error: Exception | None = None

    def read(self, number: np.int64) -> _Element:
        """Return an element by index; after an error, every later call raises the same error."""
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                if number != self._next:
                    self._following = self._elements(int(number))
                self._next = int(number) + 1
                return next(self._following)
            except Exception as error:
                self._error = self._corrupt_records.error = error
                raise


def _batches(
    elements: Callable[[int], Iterator[_Element]],
    count: int,
    part: int,
    corrupt_records: CorruptRecordPolicy,
    features_of: Callable[[_Element], Features],
) -> tf.data.Dataset:
    """Return a dataset of the features of `count` elements with `part` examples each."""
    reader = _Reader(elements, corrupt_records)
    dtypes = _Element(tf.int32, tf.uint64, tf.string, tf.float32)
    shapes: tuple[list[int], ...] = ([], [part], [part], [part])

    def read(number: tf.Tensor) -> _Element:
        # The result depends only on the index. Without stateful=False, TensorFlow's op determinism disables
        # prefetching.
        tensors = tf.numpy_function(reader.read, [number], dtypes, stateful=False)
        return _Element(*map(tf.ensure_shape, tensors, shapes))

    options = tf.data.Options()
    # Each host reads its own input shard.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # Elements are read in order.
    options.experimental_optimization.map_parallelization = False
    return (
        tf.data.Dataset.range(count)
        .map(read)
        .prefetch(_READ_AHEAD)
        .map(features_of, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def _features_of(
    directory: Path, dataset: Dataset, lengths: list[list[Shard]], pad_rows: bool
) -> Callable[[_Element], Features]:
    """Return a function from an element to its features, with masks."""
    masking = DynamicMasking.from_dataset(directory, dataset)
    longest = feature_lengths(dataset, dataset.max_seq_length, dataset.max_predictions_per_seq)

    def features_at(shard: Shard, keys: tf.Tensor, records: tf.Tensor) -> Features:
        features = parser(dataset, shard.max_seq_length, shard.max_predictions_per_seq)(records)
        if masking is not None:
            features = mask_batch(features, masking, shard.max_predictions_per_seq, keys)
        if pad_rows:
            features = {
                name: tf.pad(values, [[0, 0], [0, longest[name] - values.shape[1]]])
                for name, values in features.items()
            }
        return features

    def features_of(element: _Element) -> Features:
        branches = [lambda shard=shards[0]: features_at(shard, element.keys, element.records) for shards in lengths]
        return branches[0]() if len(branches) == 1 else tf.switch_case(element.length_index, branches)

    return features_of
