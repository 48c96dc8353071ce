"""Reads the shards of a pretraining dataset, in an order that is a pure function of (seed, epoch).

Feature names, types and shapes are those of the released create_pretraining_data.py.
"""

import hashlib
from pathlib import Path

import tensorflow as tf

from pipelines.dataset import Dataset, DatasetError, Shard

# Shards read alternately, and records taken from one before the next: enough to mix neighbours of a shard.
INTERLEAVED_SHARDS = 16
INTERLEAVED_RECORDS = 16
# Records shuffled together, about 8 MB of them at 128 positions.
SHUFFLE_WINDOW = 8192


def feature_spec(dataset: Dataset) -> dict[str, tf.io.FixedLenFeature]:
    """The seven features of a record.

    input_ids, input_mask, segment_ids int64 [max_seq_length]; masked_lm_positions, masked_lm_ids int64 and
    masked_lm_weights float32 [max_predictions_per_seq]; next_sentence_labels int64 [1].
    """
    positions, predictions = [dataset.max_seq_length], [dataset.max_predictions_per_seq]
    return {
        "input_ids": tf.io.FixedLenFeature(positions, tf.int64),
        "input_mask": tf.io.FixedLenFeature(positions, tf.int64),
        "segment_ids": tf.io.FixedLenFeature(positions, tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature(predictions, tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature(predictions, tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature(predictions, tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }


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

    Args:
        directory: where the shards' names start.
        dataset: the manifest.
        batch_size: examples a batch.
        seed: any whole number.
        first_step: batches already consumed.

    Returns:
        A dataset of dicts of the seven features, integers as int32: [batch_size, ...].

    Raises:
        DatasetError: no train examples, or a shard that is missing or truncated.
    """
    shards = [shard for shard in dataset.shards_of("train") if shard.examples]
    if not shards:
        raise DatasetError(f"{directory} holds no train examples; build the data from more text")
    check_shards(directory, shards)
    duplicates = sorted({shard.duplicate for shard in shards})
    paths = [
        [str(directory / shard.name) for shard in shards if shard.duplicate == duplicate] for duplicate in duplicates
    ]
    lengths = [sum(shard.examples for shard in shards if shard.duplicate == duplicate) for duplicate in duplicates]
    paths_of_duplicate = tf.ragged.constant(paths)

    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.random.experimental.stateless_fold_in(tf.constant([seed, 0], tf.int64), epoch)
        files = tf.random.experimental.stateless_shuffle(paths_of_duplicate[epoch % len(paths)], seed=epoch_seed)
        records = tf.data.Dataset.from_tensor_slices(files).interleave(
            tf.data.TFRecordDataset, cycle_length=INTERLEAVED_SHARDS, block_length=INTERLEAVED_RECORDS
        )

        # A shuffle buffer would draw from a generator of its own; a window is shuffled by a seed alone.
        def shuffled(index: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
            window_seed = tf.random.experimental.stateless_fold_in(epoch_seed, index)
            return tf.random.experimental.stateless_shuffle(window, seed=window_seed)

        return records.batch(SHUFFLE_WINDOW).enumerate().map(shuffled).unbatch()

    # Whole epochs already consumed are not read again; the records of the current one are, unparsed.
    cycles, skipped = divmod(first_step * batch_size, sum(lengths))
    first_epoch = cycles * len(lengths)
    while skipped >= lengths[first_epoch % len(lengths)]:
        skipped -= lengths[first_epoch % len(lengths)]
        first_epoch += 1
    records = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch_records).skip(skipped)
    return _parsed(records.batch(batch_size, drop_remainder=True), dataset)


def validation_batches(directory: Path, dataset: Dataset, batch_size: int, max_batches: int) -> tf.data.Dataset | None:
    """The first batches of the validation shards of duplicate 0, each example once, in the order of the manifest.

    Args:
        directory: where the shards' names start.
        dataset: the manifest.
        batch_size: examples a batch; the last batch may be smaller.
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
    records = tf.data.TFRecordDataset([str(directory / shard.name) for shard in shards])
    return _parsed(records.batch(batch_size).take(max_batches), dataset)


def _parsed(batches: tf.data.Dataset, dataset: Dataset) -> tf.data.Dataset:
    spec = feature_spec(dataset)

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(serialized, spec)
        # Accelerators have no 64-bit integers worth using.
        return {name: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for name, v in features.items()}

    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)
