import itertools

import numpy as np
import pytest
import tensorflow as tf
from pretraining_shards import LENGTH, PREDICTIONS, write_dataset

from pipelines.dataset import DatasetError
from trainers import input as trainer_input
from trainers.input import check_shards, damaged_shard, train_batches, validation_batches


def keys(batch):
    """Each example as bytes, to be counted and compared."""
    return [row.tobytes() for row in batch["input_ids"].numpy()]


def stored_examples(directory, dataset, split, duplicate):
    """What the shards hold, read one record at a time by the protocol buffer alone."""
    examples = []
    for shard in dataset.shards:
        if (shard.split, shard.duplicate) == (split, duplicate):
            for record in tf.data.TFRecordDataset(str(directory / shard.name)):
                values = tf.train.Example.FromString(record.numpy()).features.feature["input_ids"].int64_list.value
                examples.append(np.array(values, np.int32).tobytes())
    return examples


def take(batches, count):
    return list(itertools.islice(batches, count))


def test_shapes_and_types(tmp_path):
    dataset = write_dataset(tmp_path)
    (batch,) = take(train_batches(tmp_path, dataset, 6, seed=1), 1)
    described = {name: (value.dtype, value.shape.as_list()) for name, value in batch.items()}
    assert described == {
        "input_ids": (tf.int32, [6, LENGTH]),
        "input_mask": (tf.int32, [6, LENGTH]),
        "segment_ids": (tf.int32, [6, LENGTH]),
        "masked_lm_positions": (tf.int32, [6, PREDICTIONS]),
        "masked_lm_ids": (tf.int32, [6, PREDICTIONS]),
        "masked_lm_weights": (tf.float32, [6, PREDICTIONS]),
        "next_sentence_labels": (tf.int32, [6, 1]),
    }


def test_an_epoch_is_one_duplicate_each_example_once(tmp_path):
    dataset = write_dataset(tmp_path)
    # 17 examples in each of two duplicates: batches of 1 over four epochs.
    seen = [keys(batch)[0] for batch in take(train_batches(tmp_path, dataset, 1, seed=1), 4 * 17)]
    epochs = [seen[start : start + 17] for start in range(0, 68, 17)]
    for number, epoch in enumerate(epochs):
        assert sorted(epoch) == sorted(stored_examples(tmp_path, dataset, "train", number % 2))
    assert epochs[0] != epochs[2]
    assert epochs[1] != epochs[3]


def test_order_depends_on_the_seed_and_nothing_else(tmp_path):
    dataset = write_dataset(tmp_path)

    def order(seed):
        return [keys(batch) for batch in take(train_batches(tmp_path, dataset, 4, seed), 12)]

    first = order(1)
    tf.random.set_seed(99)
    np.random.default_rng().random()
    assert order(1) == first
    assert order(2) != first


@pytest.mark.parametrize("first_step", [1, 4, 5, 9, 17, 23])
def test_resuming_gives_the_batches_that_would_have_come(tmp_path, monkeypatch, first_step):
    # Several windows an epoch, so that the shuffle within them is resumed in the middle too.
    monkeypatch.setattr(trainer_input, "SHUFFLE_WINDOW", 5)
    examples = {("train", 0): [10, 7], ("train", 1): [6], ("train", 2): [4, 1, 3]}
    dataset = write_dataset(tmp_path, examples)
    straight = [keys(batch) for batch in take(train_batches(tmp_path, dataset, 4, seed=1), 30)]
    resumed = [keys(batch) for batch in take(train_batches(tmp_path, dataset, 4, seed=1, first_step=first_step), 5)]
    assert resumed == straight[first_step : first_step + 5]


def test_validation_is_duplicate_0_once_in_order(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [1], ("validation", 0): [5, 6], ("validation", 1): [3]})
    batches = list(validation_batches(tmp_path, dataset, 4, max_batches=100))
    assert [len(keys(batch)) for batch in batches] == [4, 4, 3]
    assert [key for batch in batches for key in keys(batch)] == stored_examples(tmp_path, dataset, "validation", 0)
    assert len(list(validation_batches(tmp_path, dataset, 4, max_batches=2))) == 2


def test_no_examples(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [3], ("validation", 0): [0]})
    assert validation_batches(tmp_path, dataset, 4, max_batches=2) is None
    dataset = write_dataset(tmp_path, {("train", 0): [0], ("validation", 0): [2]})
    with pytest.raises(DatasetError, match="no train examples"):
        train_batches(tmp_path, dataset, 4, seed=1)


def test_missing_truncated_and_damaged_shards_are_named(tmp_path):
    dataset = write_dataset(tmp_path)
    path = tmp_path / "train-1-0.tfrecord"
    content = path.read_bytes()
    assert damaged_shard(tmp_path, dataset.shards) is None

    path.write_bytes(content[:100] + b"\0" + content[101:])
    check_shards(tmp_path, dataset.shards)
    assert damaged_shard(tmp_path, dataset.shards) == str(path)

    path.write_bytes(content[:-1])
    with pytest.raises(DatasetError, match=rf"train-1-0.tfrecord has {len(content) - 1} bytes, .* says {len(content)}"):
        train_batches(tmp_path, dataset, 4, seed=1)
    path.unlink()
    with pytest.raises(DatasetError, match=r"train-1-0.tfrecord is missing"):
        train_batches(tmp_path, dataset, 4, seed=1)
