"""Tests of `as_tf_dataset`: the examples of the shards, in the order of the manifest or of the trainer."""

import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from beambert.pipelines.dataset import FILE_NAME
from beambert.pipelines.errors import DatasetError
from beambert.trainers.data.pipeline import train_batches, validation_batches
from beambert.trainers.data.tf_dataset import as_tf_dataset
from tests.conftest import ROOT
from tests.trainers.data.test_pipeline import FORMATS, stages
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, PREDICTIONS, write_dataset


def written(folder, changes, examples=None):
    return write_dataset(folder, examples, options=dataclasses.replace(OPTIONS, **changes))


def content(batches):
    """Return each batch as names, shapes, dtypes and bytes."""
    return [
        {name: (np.shape(value), np.asarray(value).dtype, np.asarray(value).tobytes()) for name, value in batch.items()}
        for batch in batches
    ]


def stored(folder, dataset, split, copy):
    """Yield the features of a copy as TensorFlow parses them, one record at a time in manifest order."""
    names = {in_file: name for name, in_file in dataset.features.items()}
    types = {in_file: tf.float32 if name.endswith("_weights") else tf.int64 for in_file, name in names.items()}
    spec = {in_file: tf.io.VarLenFeature(dtype) for in_file, dtype in types.items()}
    compression = "GZIP" if dataset.compression == "gzip" else ""
    for shard in dataset.shards_of(split):
        if shard.copy == copy:
            for record in tf.data.TFRecordDataset(str(folder / shard.name), compression):
                example = tf.io.parse_single_example(record, spec)
                yield {names[in_file]: tf.sparse.to_dense(value).numpy() for in_file, value in example.items()}


def assert_examples(found, wanted, length, predictions):
    found, wanted = list(found), list(wanted)
    assert len(found) == len(wanted)
    for example, values in zip(found, wanted, strict=True):
        assert example.keys() == values.keys()
        for name, value in values.items():
            size = predictions if name.startswith("masked") else 1 if name.startswith("next") else length
            assert example[name].shape == (size,)
            assert example[name].dtype == (np.float32 if name == "masked_lm_weights" else np.int32)
            assert np.array_equal(example[name], np.pad(value, (0, size - len(value))))


@pytest.mark.parametrize("changes", [{}, {"compression": "gzip", "ragged": True, "feature_names": "model_garden"}])
def test_single_examples_are_those_of_the_shards_in_order(tmp_path, changes):
    dataset = written(tmp_path, changes)
    for epochs, copies in ((1, [0]), (3, [0, 1, 0])):
        found = as_tf_dataset(str(tmp_path), epochs=epochs)
        wanted = itertools.chain.from_iterable(stored(tmp_path, dataset, "train", copy) for copy in copies)
        assert_examples(found.as_numpy_iterator(), wanted, LENGTH, PREDICTIONS)
        assert found.cardinality() == 17 * epochs
    found = as_tf_dataset(tmp_path, "validation")
    assert_examples(found.as_numpy_iterator(), stored(tmp_path, dataset, "validation", 0), LENGTH, PREDICTIONS)
    assert found.element_spec["input_ids"] == tf.TensorSpec([LENGTH], tf.int32)
    assert found.element_spec["masked_lm_weights"] == tf.TensorSpec([PREDICTIONS], tf.float32)


@pytest.mark.parametrize(("name", "pad_rows"), [*((name, False) for name in FORMATS), ("dynamic length bins", True)])
def test_shuffled_batches_are_those_of_the_trainer(tmp_path, name, pad_rows):
    dataset = written(tmp_path, FORMATS[name])
    wanted = content(train_batches(tmp_path, dataset, stages(4, 40), 0, seed=3, pad_rows=pad_rows))
    found = as_tf_dataset(tmp_path, batch_size=4, shuffle=True, seed=3, epochs=None, pad_rows=pad_rows)
    assert found.cardinality() == tf.data.INFINITE_CARDINALITY
    assert content(found.take(40).as_numpy_iterator()) == wanted
    other = as_tf_dataset(tmp_path, batch_size=4, shuffle=True, seed=4, epochs=None, pad_rows=pad_rows)
    assert content(other.take(4).as_numpy_iterator()) != wanted[:4]


@pytest.mark.parametrize("changes", FORMATS.values(), ids=FORMATS)
def test_validation_batches_are_those_of_the_trainer_without_padding(tmp_path, changes):
    dataset = written(tmp_path, changes)
    wanted = []
    for batch in validation_batches(tmp_path, dataset, 4, 100):
        real = batch.pop("example_weights") > 0
        wanted.append({name: values[real] for name, values in batch.items()})
    found = as_tf_dataset(tmp_path, "validation", batch_size=4)
    assert content(found.as_numpy_iterator()) == content(wanted)
    assert found.cardinality() == len(wanted)


@pytest.mark.parametrize(
    ("changes", "shuffle"), [({}, False), ({}, True), (FORMATS["length bins"], True), (FORMATS["ragged gzip"], False)]
)
def test_an_epoch_has_every_example_of_its_copy_once(tmp_path, changes, shuffle):
    dataset = written(tmp_path, changes)
    lengths = len({shard.max_seq_length for shard in dataset.shards})
    for batch_size, drop_remainder in ((None, False), (5, False), (5, True)):
        found = as_tf_dataset(tmp_path, batch_size=batch_size, shuffle=shuffle, epochs=3, drop_remainder=drop_remainder)
        elements = list(found.as_numpy_iterator())
        assert found.cardinality() == len(elements)
        # Each copy has 17 examples of each length.
        if drop_remainder:
            assert {len(batch["input_ids"]) for batch in elements} == {5}
            assert len(elements) == lengths * (51 // 5)
            assert found.element_spec["input_ids"].shape[0] == 5
            continue
        rows = [row for batch in elements for row in (batch["next_sentence_labels"] if batch_size else [batch])]
        assert len(rows) == 51 * lengths
        if dataset.features.get("masked_lm_ids") and lengths == 1:
            seen = [values.tobytes() for batch in elements for values in np.atleast_2d(batch["input_ids"])]
            of_copy = [sorted(ids.tobytes() for ids in padded(tmp_path, dataset, copy)) for copy in (0, 1)]
            epochs = [sorted(seen[start : start + 17]) for start in (0, 17, 34)]
            assert epochs == [of_copy[0], of_copy[1], of_copy[0]]
            assert (seen[:17] == seen[34:]) == (not shuffle)


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_of_a_copy_without_examples_of_a_length(tmp_path, shuffle):
    options = dataclasses.replace(OPTIONS, length_bins=(20, LENGTH))
    dataset = write_dataset(tmp_path, {("train", copy): [7] for copy in range(3)}, options=options)
    shards = [shard for shard in dataset.shards if (shard.copy, shard.max_seq_length) != (1, 20)]
    dataset = dataclasses.replace(dataset, shards=shards)
    (tmp_path / FILE_NAME).write_text(dataset.to_json(), encoding="utf-8")
    of_copy = [
        [example["input_ids"].astype(np.int32).tobytes() for example in stored(tmp_path, dataset, "train", copy)]
        for copy in range(3)
    ]
    for epochs in (1, 2, 5):
        found = as_tf_dataset(tmp_path, shuffle=shuffle, epochs=epochs)
        seen = [example["input_ids"].tobytes() for example in found.as_numpy_iterator()]
        assert sorted(seen) == sorted(itertools.chain.from_iterable(of_copy[epoch % 3] for epoch in range(epochs)))
        assert found.cardinality() == len(seen)


def padded(folder, dataset, copy):
    for example in stored(folder, dataset, "train", copy):
        yield np.pad(example["input_ids"], (0, LENGTH - len(example["input_ids"]))).astype(np.int32)


def test_features_of_packed_rows(tmp_path):
    written(tmp_path, {"pack": True})
    batch = next(as_tf_dataset(tmp_path, batch_size=2).as_numpy_iterator())
    assert batch["sequence_ids"].shape == (2, LENGTH)
    assert batch["next_sentence_positions"].dtype == np.int32
    assert batch["next_sentence_weights"].dtype == np.float32
    assert batch["next_sentence_weights"].shape == batch["next_sentence_labels"].shape


def test_every_iteration_is_the_same(tmp_path):
    written(tmp_path, {"masking": "dynamic"})
    found = as_tf_dataset(tmp_path, batch_size=4, shuffle=True, seed=1, epochs=4)
    first = content(found.as_numpy_iterator())
    tf.random.set_seed(99)
    assert content(found.as_numpy_iterator()) == first
    # Copy 0 has other masks when it is read again.
    unshuffled = as_tf_dataset(tmp_path, epochs=3).as_numpy_iterator()
    rows = [(example["input_ids"], example["masked_lm_positions"]) for example in unshuffled]
    assert any((a != b).any() for (_, a), (_, b) in zip(rows[:17], rows[34:], strict=True))


@pytest.mark.parametrize(("changes", "split"), [(FORMATS["dynamic length bins"], "train"), ({}, "validation")])
def test_processes_share_every_batch(tmp_path, changes, split):
    written(tmp_path, changes)
    options = {"batch_size": 4, "drop_remainder": True, "shuffle": split == "train", "seed": 5}
    options |= {"epochs": 2} if split == "train" else {}
    whole = list(as_tf_dataset(tmp_path, split, **options).as_numpy_iterator())
    shares = [as_tf_dataset(tmp_path, split, **options, num_processes=2, process_id=i) for i in (0, 1)]
    assert {share.element_spec["input_ids"].shape[0] for share in shares} == {2}
    parts = [list(share.as_numpy_iterator()) for share in shares]
    together = [{name: np.concatenate([a[name], b[name]]) for name in a} for a, b in zip(*parts, strict=True)]
    assert len(whole) > 1
    assert content(together) == content(whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "invalid split 'test': must be train or validation"),
        ({"split": "validation", "shuffle": True}, "omit shuffle and epochs"),
        ({"split": "validation", "epochs": None}, "omit shuffle and epochs"),
        ({"seed": -1}, "invalid seed -1"),
        ({"seed": 2**31}, "invalid seed 2147483648"),
        ({"epochs": 0}, "invalid epochs 0"),
        ({"batch_size": 0}, "invalid batch_size 0"),
        ({"drop_remainder": True}, "drop_remainder requires a batch_size"),
        ({"num_processes": 2, "process_id": 2}, "invalid process_id 2 of num_processes 2"),
        ({"num_processes": 0}, "invalid process_id 0 of num_processes 0"),
        ({"num_processes": 2, "batch_size": 4}, "requires a batch_size and drop_remainder=True"),
        ({"num_processes": 2, "batch_size": 3, "drop_remainder": True}, "must be a multiple of num_processes 2"),
        ({"on_corrupt_record": "raise"}, "must be error or skip"),
    ],
)
def test_invalid_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        as_tf_dataset(tmp_path, **arguments)


def test_unusable_directories_are_errors(tmp_path):
    with pytest.raises(DatasetError, match="does not exist; build a dataset there"):
        as_tf_dataset(tmp_path / "missing")
    written(tmp_path / "train", {}, {("train", 0): [3]})
    with pytest.raises(DatasetError, match="has no validation examples"):
        as_tf_dataset(tmp_path / "train", "validation")
    dataset = written(tmp_path / "parquet", {})
    parquet = dataclasses.replace(dataset, file_format="parquet")
    (tmp_path / "parquet" / "dataset.json").write_text(parquet.to_json())
    with pytest.raises(DatasetError, match=r"contains parquet shards, .* build the data again with --format tfrecord"):
        as_tf_dataset(tmp_path / "parquet")
    (tmp_path / "train" / "train-0-0.tfrecord").unlink()
    with pytest.raises(DatasetError, match="is missing, but listed in the manifest"):
        as_tf_dataset(tmp_path / "train")
    written(tmp_path / "dynamic", {"masking": "dynamic"})
    (tmp_path / "dynamic" / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        as_tf_dataset(tmp_path / "dynamic")


def test_a_corrupt_record(tmp_path):
    written(tmp_path, {})
    path = tmp_path / "train-0-1.tfrecord"
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(tf.errors.OpError, match="has a corrupt record at byte 0"):
        list(as_tf_dataset(tmp_path, batch_size=4))
    rows = [
        example["input_ids"].tobytes()
        for example in as_tf_dataset(tmp_path, on_corrupt_record="skip").as_numpy_iterator()
    ]
    assert len(rows) == 17
    assert rows[10] == rows[11]


def test_the_import_does_not_import_tensorflow():
    code = "import sys; from beambert.trainers.data import as_tf_dataset; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert not {"tensorflow", "keras"} & set(done.stdout.split())
