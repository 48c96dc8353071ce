"""Tests of rows of several lengths: batches of one length, every example once per epoch, an order fixed by the seed."""

import collections
import dataclasses

import numpy as np
import tensorflow as tf

from beambert.trainers.data.example_order import length_of_step
from beambert.trainers.data.pipeline import train_batches, validation_batches
from beambert.trainers.optimization.schedule import Stage
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, write_dataset

STAGES = [Stage(data=0, batch_size=4, first_step=0, end_step=40, first_example=0)]
BINS = dataclasses.replace(OPTIONS, length_bins=(20, 26, LENGTH))


def keys(batch):
    return [row.tobytes() for row in batch["input_ids"]]


def write(directory, counts):
    """Write and return a dataset whose shards have the given numbers of examples, by copy and length."""
    dataset = write_dataset(directory, {("train", 0): [40], ("train", 1): [40], ("validation", 0): [10]}, options=BINS)
    shards = []
    for shard in dataset.shards:
        of_bin = BINS.length_bins.index(shard.max_seq_length)
        examples = counts[shard.copy][of_bin] if shard.split == "train" else shard.examples
        path = directory / shard.name
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))][:examples]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
        if examples:
            shards.append(dataclasses.replace(shard, examples=examples, bytes=path.stat().st_size))
    return dataclasses.replace(dataset, shards=shards)


def test_an_epoch_has_every_example_once_and_each_batch_one_length(tmp_path):
    dataset = write(tmp_path, [(8, 12, 20), (8, 12, 20)])
    batches = list(train_batches(tmp_path, dataset, STAGES, 0, seed=1))
    for batch in batches:
        length = batch["input_ids"].shape[1]
        assert {name: list(value.shape) for name, value in batch.items() if "masked" in name} == {
            name: [4, BINS.predictions_in(length)]
            for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        }
    for length, a_copy in zip(BINS.length_bins, (2, 3, 5), strict=True):
        of_length = [batch for batch in batches if batch["input_ids"].shape[1] == length]
        # Forty batches are four epochs, to within two batches of each length.
        assert abs(len(of_length) - 4 * a_copy) <= 2
        seen = [key for batch in of_length for key in keys(batch)]
        epochs = [seen[first : first + 4 * a_copy] for first in range(0, len(seen), 4 * a_copy)]
        assert all(count == 1 for epoch in epochs for count in collections.Counter(epoch).values())
        assert sorted(epochs[0]) == sorted(epochs[2])
        assert not set(epochs[0]) & set(epochs[1])


def test_every_range_of_steps_has_each_length_in_proportion():
    examples = [5, 100, 1000, 31_000]
    bins = length_of_step(np.arange(200_000), examples, seed=2**31 - 1)
    shares = np.array(examples) / sum(examples)
    for first, last in [(0, 200_000), (0, 1000), (77_777, 78_777), (150_000, 199_999)]:
        counts = np.bincount(bins[first:last], minlength=4)
        assert (abs(counts - shares * (last - first)) < 5).all()
    # Step numbers beyond those of any run, one at a time and many at once.
    far = np.arange(2**31 - 100, 2**31)
    one_by_one = [int(length_of_step(np.array([step]), examples, 7)[0]) for step in far]
    assert length_of_step(far, examples, 7).tolist() == one_by_one


def test_validation_has_every_example_once_and_all_lengths_early(tmp_path):
    dataset = write_dataset(tmp_path, {("validation", 0): [10, 11]}, options=BINS)
    batches = list(validation_batches(tmp_path, dataset, 4, max_batches=100))
    assert len({key for batch in batches for key in keys(batch)}) == 3 * 21
    assert sum(float(batch["example_weights"].sum()) for batch in batches) == 3 * 21
    assert len(batches) == 3 * 6
    for few in (3, 6):
        lengths = [batch["input_ids"].shape[1] for batch in validation_batches(tmp_path, dataset, 4, max_batches=few)]
        assert collections.Counter(lengths) == dict.fromkeys(BINS.length_bins, few // 3)
