"""Reads the shards of a pretraining dataset, in an order that is a pure function of (seed, epoch).

Rows of several lengths (`--length_bins`) come in batches of one length, each length as often as its share of the
examples says.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.dataset import Dataset, DatasetError, Shard
from trainers.masking import DynamicMasking, mask_batch
from trainers.records import parser, read_records
from trainers.task import Features

# Shards read alternately, and records taken from one before the next: enough to mix neighbours of a shard.
INTERLEAVED_SHARDS = 16
INTERLEAVED_RECORDS = 16
# Records shuffled together, about 8 MB of them at 128 positions.
SHUFFLE_WINDOW = 8192
# Validation records that get their masks together, whatever the batch size, so that it decides nothing.
MASKED_TOGETHER = 64
# 2**32 divided by the golden ratio: multiples of it, modulo 2**32, fall evenly (Knuth, TAOCP 3, section 6.4).
_GOLDEN = 2_654_435_769


def check_shards(directory: Path, shards: list[Shard]) -> None:
    """Compares the files with the manifest, by size.

    Raises:
        DatasetError: a shard is missing, or is not as long as the manifest says.
    """
    for shard in shards:
        path = directory / shard.name
        if not path.is_file():
            raise DatasetError(
                f"{path} is missing, though the manifest lists it; copy it there or build the data again"
            )
        size = path.stat().st_size
        if size != shard.bytes:
            raise DatasetError(
                f"{path} has {size} bytes, the manifest says {shard.bytes}: it is truncated or not the file that was "
                "built; copy it again or build the data again"
            )


def damaged_shard(directory: Path, shards: list[Shard]) -> str | None:
    """The path of the first shard whose SHA-256 is not the manifest's, or None; reads every byte."""
    for shard in shards:
        path = directory / shard.name
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                return str(path)
    return None


def train_batches(
    directory: Path, dataset: Dataset, batch_size: int, seed: int, first_step: int = 0
) -> tf.data.Dataset:
    """Batches of the train shards, without end.

    Epoch e reads the shards of one duplicate, e modulo their number, so that an epoch is one pass over the corpus
    with fresh masks and pairs. Batches run on across the end of an epoch. Nothing but (seed, batch_size) decides
    what batch s holds: starting at `first_step` gives the batches that an uninterrupted run sees from there on.
    Masks that are drawn here (`--masking dynamic`) are drawn anew for every batch.

    Args:
        directory: where the shards' names start.
        dataset: the manifest.
        batch_size: examples a batch.
        seed: any whole number below 2**31.
        first_step: batches already consumed.

    Returns:
        A dataset of dicts of the features (`trainers.records.parser`), the masked_lm_* always among them:
        [batch_size, ...], the lengths of rows and their room for masked tokens static unless they differ by batch.

    Raises:
        DatasetError: no train examples, or a shard that is missing or truncated.
    """
    shards = [shard for shard in dataset.shards_of("train") if shard.examples]
    if not shards:
        raise DatasetError(f"{directory} holds no train examples; build the data from more text")
    check_shards(directory, shards)
    duplicates = sorted({shard.duplicate for shard in shards})
    bins = _by_row_length(shards)
    examples = [sum(shard.examples for shard in some) for some in bins]
    consumed = np.bincount(bin_of_step(tf.range(first_step, dtype=tf.int64), examples, seed), minlength=len(bins))
    streams = []
    for some, first_batch in zip(bins, consumed.tolist(), strict=True):
        by_duplicate = [[shard for shard in some if shard.duplicate == duplicate] for duplicate in duplicates]
        records = _train_records(directory, dataset, by_duplicate, seed, first_batch * batch_size)
        numbered = records.batch(batch_size, drop_remainder=True).enumerate(start=first_batch)
        streams.append(_parsed(numbered, _features_of(directory, dataset, some[0], [seed, 1])))
    if len(streams) == 1:
        batches = streams[0]
    else:
        steps = tf.data.Dataset.range(first_step, tf.int64.max)
        which = steps.map(lambda step: bin_of_step(step[None], examples, seed)[0])
        batches = tf.data.Dataset.choose_from_datasets(streams, which)
    return batches.prefetch(tf.data.AUTOTUNE)


def bin_of_step(steps: tf.Tensor, examples: list[int], seed: int) -> tf.Tensor:
    """Which length of rows each step's batch has.

    Any run of steps has each length in proportion to its examples, to within a few batches, so that all lengths come to
    the end of an epoch together. In whole numbers, so that every machine has the same.

    Args:
        steps: int64 [n].
        examples: how many there are of each length.
        seed: decides with which batch of the cycle a run begins.

    Returns:
        int64 [n], indices of `examples`.
    """
    total = sum(examples)
    bounds = [2**32 * int(number) // total for number in np.cumsum(examples)[:-1]]
    places = tf.math.floormod((steps + seed) * _GOLDEN, 2**32)
    return tf.searchsorted(tf.constant(bounds, tf.int64), places, side="right", out_type=tf.int64)


def validation_batches(directory: Path, dataset: Dataset, batch_size: int, max_batches: int) -> tf.data.Dataset | None:
    """The first batches of the validation shards of duplicate 0, each example once, in the order of the manifest.

    Masks that are drawn here (`--masking dynamic`) are the same in every evaluation, whatever the batch size.

    Args:
        directory: where the shards' names start.
        dataset: the manifest.
        batch_size: examples a batch; the last batch of each length of rows may be smaller.
        max_batches: batches at most.

    Returns:
        A dataset as of `train_batches`, or None if there are no validation examples.

    Raises:
        DatasetError: a shard that is missing or truncated.
    """
    shards = [shard for shard in dataset.shards_of("validation") if shard.duplicate == 0 and shard.examples]
    if not shards:
        return None
    check_shards(directory, shards)
    streams, ends = [], []
    for number, some in enumerate(_by_row_length(shards)):
        records = read_records([str(directory / shard.name) for shard in some], dataset)
        numbered = records.batch(MASKED_TOGETHER).enumerate()
        streams.append(_parsed(numbered, _features_of(directory, dataset, some[0], [0, 2])).rebatch(batch_size))
        count = -(-sum(shard.examples for shard in some) // batch_size)
        ends += [((batch + 0.5) / count, number) for batch in range(count)]
    # All lengths from the first batch to the last, so that the first batches stand for all.
    which = tf.data.Dataset.from_tensor_slices(tf.constant([number for _, number in sorted(ends)], tf.int64))
    batches = tf.data.Dataset.choose_from_datasets(streams, which)
    return batches.take(max_batches).prefetch(tf.data.AUTOTUNE)


def _by_row_length(shards: list[Shard]) -> list[list[Shard]]:
    lengths = sorted({shard.max_seq_length for shard in shards})
    return [[shard for shard in shards if shard.max_seq_length == length] for length in lengths]


def _train_records(
    directory: Path, dataset: Dataset, by_duplicate: list[list[Shard]], seed: int, skipped: int
) -> tf.data.Dataset:
    """Serialized records without end, epoch after epoch, from number `skipped` on."""
    paths = tf.ragged.constant(
        [[str(directory / shard.name) for shard in shards] for shards in by_duplicate], tf.string, ragged_rank=1
    )
    lengths = [sum(shard.examples for shard in shards) for shards in by_duplicate]

    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.random.experimental.stateless_fold_in(tf.constant([seed, 0], tf.int64), epoch)
        files = tf.random.experimental.stateless_shuffle(paths[epoch % len(lengths)], seed=epoch_seed)
        records = tf.data.Dataset.from_tensor_slices(files).interleave(
            lambda path: read_records(path, dataset), cycle_length=INTERLEAVED_SHARDS, block_length=INTERLEAVED_RECORDS
        )

        # A shuffle buffer would draw from a generator of its own; a window is shuffled by a seed alone.
        def shuffled(index: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
            window_seed = tf.random.experimental.stateless_fold_in(epoch_seed, index)
            return tf.random.experimental.stateless_shuffle(window, seed=window_seed)

        return records.batch(SHUFFLE_WINDOW).enumerate().map(shuffled).unbatch()

    # Whole epochs already consumed are not read again; the records of the current one are, unparsed.
    cycles, skipped = divmod(skipped, sum(lengths))
    first_epoch = cycles * len(lengths)
    while skipped >= lengths[first_epoch % len(lengths)]:
        skipped -= lengths[first_epoch % len(lengths)]
        first_epoch += 1
    return tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch_records).skip(skipped)


def _features_of(
    directory: Path, dataset: Dataset, shard: Shard, seed: list[int]
) -> Callable[[tf.Tensor, tf.Tensor], Features]:
    """From a number and as many records like those of the shard to their features, with masks."""
    parse = parser(dataset, shard.max_seq_length, shard.max_predictions_per_seq)
    masking = DynamicMasking.of(directory, dataset)
    if masking is None:
        return lambda _, serialized: parse(serialized)

    def parse_and_mask(number: tf.Tensor, serialized: tf.Tensor) -> Features:
        row_length = tf.constant(shard.max_seq_length, tf.int64)
        of_length = tf.random.experimental.stateless_fold_in(tf.constant(seed, tf.int64), row_length)
        mask_seed = tf.random.experimental.stateless_fold_in(of_length, number)
        return mask_batch(parse(serialized), masking, shard.max_predictions_per_seq, mask_seed)

    return parse_and_mask


def _parsed(numbered: tf.data.Dataset, features_of: Callable[[tf.Tensor, tf.Tensor], Features]) -> tf.data.Dataset:
    return numbered.map(features_of, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
