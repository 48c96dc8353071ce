"""Tests of batches: their content, starting at any step, and their division among replicas and hosts."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from beambert.pipelines.errors import DatasetError
from beambert.trainers.data.pipeline import train_batches, validation_batches
from beambert.trainers.data.shard_reader import CorruptRecordPolicy
from beambert.trainers.optimization.schedule import Stage, plan_stages
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, PREDICTIONS, write_dataset

FORMATS = {
    "plain": {},
    "length bins": {"length_bins": (20, 26, LENGTH)},
    "dynamic length bins": {"length_bins": (16, LENGTH), "masking": "dynamic"},
    "ragged gzip": {"ragged": True, "compression": "gzip"},
}


def stages(batch_size, updates):
    return [Stage(data=0, batch_size=batch_size, first_step=0, end_step=updates, first_example=0)]


def keys(batch):
    """Return each example as bytes, to be counted and compared."""
    return [row.tobytes() for row in batch["input_ids"]]


def whole(batches):
    """Return the shape and the bytes of every feature of each batch."""
    return [{name: (value.shape, value.tobytes()) for name, value in batch.items()} for batch in batches]


def stored_examples(directory, dataset, split, copy):
    """Return the examples of the shards, read one record at a time with TensorFlow only."""
    examples = []
    compression = "GZIP" if dataset.compression == "gzip" else ""
    for shard in dataset.shards_of(split):
        if shard.copy == copy:
            for record in tf.data.TFRecordDataset(str(directory / shard.name), compression):
                values = tf.train.Example.FromString(record.numpy()).features.feature["input_ids"].int64_list.value
                examples.append(np.array(values, np.int32).tobytes())
    return examples


def test_shapes_and_types(tmp_path):
    dataset = write_dataset(tmp_path)
    batches = train_batches(tmp_path, dataset, stages(6, 1), 0, seed=1)
    (batch,) = batches
    described = {name: (value.shape, value.dtype) for name, value in batch.items()}
    assert described == {
        "input_ids": ((6, LENGTH), np.int32),
        "input_mask": ((6, LENGTH), np.int32),
        "segment_ids": ((6, LENGTH), np.int32),
        "masked_lm_positions": ((6, PREDICTIONS), np.int32),
        "masked_lm_ids": ((6, PREDICTIONS), np.int32),
        "masked_lm_weights": ((6, PREDICTIONS), np.float32),
        "next_sentence_labels": ((6, 1), np.int32),
    }
    assert dict(batches.shapes) == described
    assert batches.count == len(batches) == 1


@pytest.mark.parametrize("changes", FORMATS.values(), ids=FORMATS)
def test_batches_after_resuming_and_on_replicas_equal_those_of_one_host(tmp_path, changes):
    examples = {("train", 0): [10, 7], ("train", 1): [6], ("train", 2): [4, 1, 3]}
    dataset = write_dataset(tmp_path, examples, options=dataclasses.replace(OPTIONS, **changes))
    # 4 examples per step, then 8, then 16.
    ramp = plan_stages(30, [LENGTH], None, 16, "4:11,8:20")
    assert [stage.batch_size for stage in ramp] == [4, 8, 16]
    one_host = []
    for number, stage in enumerate(ramp):
        of_stage = list(train_batches(tmp_path, dataset, ramp[: number + 1], stage.first_step, seed=3))
        assert len(of_stage) == stage.end_step - stage.first_step
        assert {len(batch["input_ids"]) for batch in of_stage} == {stage.batch_size}
        one_host += of_stage
    for step in (10, 23):
        until = next(number for number, stage in enumerate(ramp) if step < stage.end_step) + 1
        resumed = train_batches(tmp_path, dataset, ramp[:until], step, seed=3)
        assert whole(resumed) == whole(one_host[step : ramp[until - 1].end_step])
    for replicas, local in [(2, 1), (4, 2)]:
        # Start in the middle of the second stage.
        hosts = [
            train_batches(
                tmp_path, dataset, ramp[:2], 13, 3, replicas=replicas, first_replica=first, local_replicas=local
            )
            for first in range(0, replicas, local)
        ]
        parts = [list(host) for host in hosts]
        for update, expected in enumerate(one_host[13:20]):
            of_update = [part for host in parts for part in host[update * local : (update + 1) * local]]
            assert [len(part["input_ids"]) for part in of_update] == [8 // replicas] * replicas
            together = {name: np.concatenate([part[name] for part in of_update]) for name in expected}
            assert whole([together]) == whole([expected])


@pytest.mark.parametrize("changes", FORMATS.values(), ids=FORMATS)
def test_batches_are_read_from_any_index(tmp_path, changes):
    dataset = write_dataset(tmp_path, options=dataclasses.replace(OPTIONS, **changes))
    shard = {"replicas": 4, "first_replica": 1, "local_replicas": 3}
    for batches in (
        train_batches(tmp_path, dataset, stages(8, 6), 2, seed=3, **shard),
        validation_batches(tmp_path, dataset, 8, 10, **shard),
    ):
        straight = whole(batches)
        assert len(straight) == batches.count > 3
        for index in range(batches.count + 1):
            assert whole(batches.from_index(index)) == straight[index:]


def test_rows_of_all_lengths_are_padded_to_one_shape(tmp_path):
    options = dataclasses.replace(OPTIONS, length_bins=(16, LENGTH), masking="dynamic")
    dataset = write_dataset(tmp_path, options=options)
    padded = train_batches(tmp_path, dataset, stages(4, 12), 0, seed=3, pad_rows=True)
    assert not any(None in shape for shape, _ in padded.shapes.values())
    lengths = collections.Counter()
    for batch, as_it_is in zip(padded, train_batches(tmp_path, dataset, stages(4, 12), 0, seed=3), strict=True):
        length, predictions = as_it_is["input_ids"].shape[1], as_it_is["masked_lm_ids"].shape[1]
        lengths[length] += 1
        assert batch["input_ids"].shape == (4, LENGTH)
        for name, value in batch.items():
            size = as_it_is[name].shape[1]
            np.testing.assert_array_equal(value[:, :size], as_it_is[name])
            assert not np.any(value[:, size:])
        assert predictions <= batch["masked_lm_ids"].shape[1] == PREDICTIONS
    assert set(lengths) == {16, LENGTH}
    shapes = validation_batches(tmp_path, dataset, 4, 3, pad_rows=True).shapes
    assert shapes == {**padded.shapes, "example_weights": ((4,), np.float32)}


def test_validation_is_copy_0_once_in_order(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [1], ("validation", 0): [5, 6], ("validation", 1): [3]})
    batches = list(validation_batches(tmp_path, dataset, 4, max_batches=100))
    assert [batch["example_weights"].tolist() for batch in batches] == [[1.0] * 4, [1.0] * 4, [1, 1, 1, 0]]
    assert batches[-1]["masked_lm_weights"][-1].tolist() == [0.0] * PREDICTIONS
    seen = [key for batch in batches for key in keys(batch)]
    stored = stored_examples(tmp_path, dataset, "validation", 0)
    # The last batch is padded with an example of weight 0.
    assert seen == [*stored, stored[0]]
    assert len(list(validation_batches(tmp_path, dataset, 4, max_batches=2))) == 2


@pytest.mark.parametrize("changes", [{}, FORMATS["dynamic length bins"]], ids=["plain", "dynamic length bins"])
@pytest.mark.parametrize(("replicas", "local"), [(2, 1), (4, 2)])
def test_hosts_share_out_validation(tmp_path, changes, replicas, local):
    dataset = write_dataset(tmp_path, {("validation", 0): [5, 1]}, options=dataclasses.replace(OPTIONS, **changes))
    expected = list(validation_batches(tmp_path, dataset, 4, max_batches=100))
    hosts = [
        list(
            validation_batches(tmp_path, dataset, 4, 100, replicas=replicas, first_replica=first, local_replicas=local)
        )
        for first in range(0, replicas, local)
    ]
    # Hosts also get batches of padding only, so that no host waits for another.
    assert {len(host) for host in hosts} == {local * len(expected)}
    for number, batch in enumerate(expected):
        parts = [part for host in hosts for part in host[number * local : (number + 1) * local]]
        together = {name: np.concatenate([part[name] for part in parts]) for name in batch}
        assert whole([together]) == whole([batch])
    lengths = len({shard.max_seq_length for shard in dataset.shards})
    assert sum(float(batch["example_weights"].sum()) for batch in expected) == 6 * lengths


def test_no_examples(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [3], ("validation", 0): [0]})
    assert validation_batches(tmp_path, dataset, 4, max_batches=2) is None
    dataset = write_dataset(tmp_path, {("train", 0): [0], ("validation", 0): [2]})
    with pytest.raises(DatasetError, match="no training examples"):
        train_batches(tmp_path, dataset, stages(4, 1), 0, seed=1)


def test_missing_and_truncated_shards_are_named_at_once(tmp_path):
    dataset = write_dataset(tmp_path)
    path = tmp_path / "train-1-0.tfrecord"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(
        DatasetError, match=rf"train-1-0.tfrecord has {len(content) - 1} bytes, .* lists {len(content)}"
    ):
        train_batches(tmp_path, dataset, stages(4, 1), 0, seed=1)
    path.unlink()
    with pytest.raises(DatasetError, match=r"train-1-0.tfrecord is missing"):
        train_batches(tmp_path, dataset, stages(4, 1), 0, seed=1)


def corrupt(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_corrupt_record_is_an_error_that_names_it(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [6], ("validation", 0): [6]})
    corrupt(tmp_path / "train-0-0.tfrecord", 100)
    corrupt(tmp_path / "validation-0-0.tfrecord", 100)
    with pytest.raises(DatasetError, match=r"train-0-0.tfrecord has a corrupt record at byte 0 "):
        list(train_batches(tmp_path, dataset, stages(2, 5), 0, seed=1))
    with pytest.raises(DatasetError, match=r"validation-0-0.tfrecord has a corrupt record"):
        list(validation_batches(tmp_path, dataset, 2, 10))


def rewritten(directory, shard, number, change):
    """Write a shard again with one record changed, with valid checksums; return its new entry in the manifest."""
    path = directory / shard.name
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    example = tf.train.Example.FromString(records[number])
    change(example.features.feature)
    records[number] = example.SerializeToString()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return dataclasses.replace(shard, bytes=path.stat().st_size)


INVALID = {
    "has no feature input_ids": lambda features: features.pop("input_ids"),
    f"has {LENGTH - 1} values of the feature segment_ids, not {LENGTH}": (
        lambda features: features["segment_ids"].int64_list.value.pop()
    ),
    "has a feature masked_lm_weights whose values are not floats": (
        lambda features: features["masked_lm_weights"].int64_list.value.append(1)
    ),
}


@pytest.mark.parametrize(("problem", "change"), INVALID.items(), ids=["missing", "short", "type"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_an_example_unlike_the_manifest_is_an_error_that_names_it(tmp_path, split, problem, change):
    dataset = write_dataset(tmp_path, {(split, 0): [3, 6]})
    first, second = dataset.shards
    dataset = dataclasses.replace(dataset, shards=[first, rewritten(tmp_path, second, 4, change)])
    if split == "train":
        batches = train_batches(tmp_path, dataset, stages(3, 6), 0, seed=1)
    else:
        batches = validation_batches(tmp_path, dataset, 4, 10)
    with pytest.raises(DatasetError) as raised:
        list(batches)
    assert str(raised.value) == (
        f"{tmp_path / second.name}: record 4 {problem}; build the data again, or restore dataset.json"
    )


def test_a_corrupt_record_moves_no_other_example(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [9, 8], ("train", 1): [9]})
    straight = [keys(batch) for batch in train_batches(tmp_path, dataset, stages(3, 17), 0, seed=5)]
    copies = [stored_examples(tmp_path, dataset, "train", copy) for copy in (0, 1)]
    lost = copies[0][0]
    corrupt(tmp_path / "train-0-0.tfrecord", 100)
    corrupt_records = CorruptRecordPolicy(skip=True)
    skipped = [
        keys(batch)
        for batch in train_batches(tmp_path, dataset, stages(3, 17), 0, seed=5, corrupt_records=corrupt_records)
    ]
    affected = [step for step, batch in enumerate(straight) if lost in batch]
    assert len(affected) == 2
    for step, (before, after) in enumerate(zip(straight, skipped, strict=True)):
        differ = [index for index in range(3) if before[index] != after[index]]
        assert [before[index] for index in differ] == [lost] * (step in affected)
        assert {after[index] for index in differ} <= set(copies[0]) - set(copies[1]) - {lost}
        assert corrupt_records.num_replaced_before(step + 1) - corrupt_records.num_replaced_before(step) == (
            step in affected
        )
    # Resuming gives the same batches.
    resumed = train_batches(tmp_path, dataset, stages(3, 17), 7, seed=5, corrupt_records=CorruptRecordPolicy(skip=True))
    assert [keys(batch) for batch in resumed] == skipped[7:]
