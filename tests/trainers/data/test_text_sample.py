"""Tests of the sample of the training split: bounded, of different shards, the same every time, and without errors."""

import dataclasses

import numpy as np
import pytest

from beambert.pipelines.dataset import load
from beambert.trainers.data import text_sample
from beambert.trainers.data.text_sample import read_sample
from tests.trainers import pretraining_shards
from tests.trainers.pretraining_shards import OPTIONS, write_dataset


def rows_of(text):
    """Return the original rows as tuples without padding."""
    return [tuple(ids[real]) for ids, real in zip(text.original_ids(), text.is_token, strict=True)]


def rows_in(directory, shards):
    """Return the original rows of shards, read with TensorFlow's protocol buffers."""
    import tensorflow as tf

    rows = []
    for shard in shards:
        for record in tf.data.TFRecordDataset(str(directory / shard.name), "GZIP" if shard.name[-1] == "z" else ""):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            ids = np.array(features["input_ids"].int64_list.value)
            if "masked_lm_ids" in features:
                weights = np.array(features["masked_lm_weights"].float_list.value) > 0
                positions = np.array(features["masked_lm_positions"].int64_list.value)[weights]
                ids[positions] = np.array(features["masked_lm_ids"].int64_list.value)[weights]
            rows.append(tuple(ids[: sum(features["input_mask"].int64_list.value)]))
    return rows


FORMATS = {
    "static": OPTIONS,
    "gzip": dataclasses.replace(OPTIONS, compression="gzip"),
    "dynamic": dataclasses.replace(OPTIONS, masking="dynamic"),
    "ragged": dataclasses.replace(OPTIONS, ragged=True),
}


@pytest.mark.parametrize("name", FORMATS)
def test_both_parts_are_rows_of_different_shards_of_the_first_copy(tmp_path, name):
    examples = {("train", 0): [9, 8, 7], ("train", 1): [30], ("validation", 0): [5]}
    dataset = write_dataset(tmp_path, examples, options=FORMATS[name])
    sample = read_sample(tmp_path, dataset)
    first, second, third = (shard for shard in dataset.shards_of("train") if shard.copy == 0)
    assert sorted(rows_of(sample.counted)) == sorted(rows_in(tmp_path, [first, third]))
    assert sorted(rows_of(sample.evaluated)) == sorted(rows_in(tmp_path, [second]))
    assert sample.rows == 24
    assert len(sample.next_sentence_labels) == 16
    assert sample.evaluated.is_predicted.any(axis=1).all()
    again = read_sample(tmp_path, load(tmp_path))
    for values, others in zip(sample.evaluated, again.evaluated, strict=True):
        np.testing.assert_array_equal(values, others)


def test_a_single_shard_is_divided_by_rows(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [41]})
    sample = read_sample(tmp_path, dataset)
    counted, evaluated = rows_of(sample.counted), rows_of(sample.evaluated)
    assert (len(counted), len(evaluated)) == (31, 10)
    assert sorted(counted + evaluated) == sorted(rows_in(tmp_path, dataset.shards))


def test_the_sample_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(text_sample, "COUNTED_POSITIONS", 10 * pretraining_shards.LENGTH)
    monkeypatch.setattr(text_sample, "EVALUATED_PREDICTIONS", 6)
    dataset = write_dataset(tmp_path, {("train", 0): [20, 20, 20, 20]})
    sample = read_sample(tmp_path, dataset)
    assert (len(sample.counted.input_ids), len(sample.evaluated.input_ids)) == (10, 4)
    # The counted rows are from their shards in turn.
    first, _, third, _ = dataset.shards
    expected = [
        row for pair in zip(rows_in(tmp_path, [first]), rows_in(tmp_path, [third]), strict=True) for row in pair
    ]
    assert rows_of(sample.counted) == expected[:10]


def test_packed_rows_and_several_lengths(tmp_path):
    options = dataclasses.replace(OPTIONS, pack=True, max_instances_per_row=2)
    sample = read_sample(tmp_path / "packed", write_dataset(tmp_path / "packed", options=options))
    assert set(sample.next_sentence_labels.tolist()) <= {0, 1}
    assert sample.counted.is_token.any(axis=1).all()
    options = dataclasses.replace(OPTIONS, length_bins=(16, 32))
    sample = read_sample(tmp_path / "bins", write_dataset(tmp_path / "bins", options=options))
    # The sample is of the length with more tokens.
    assert sample.counted.input_ids.shape[1] == 32


@pytest.mark.parametrize("damage", ["missing", "truncated", "corrupt", "empty"])
def test_an_unreadable_shard_is_not_an_error(tmp_path, damage):
    dataset = write_dataset(tmp_path, {("train", 0): [9, 8, 7]})
    path = tmp_path / dataset.shards[0].name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        middle = len(content) // 2
        contents = {"truncated": content[:middle], "empty": b""}
        path.write_bytes(contents.get(damage, content[:middle] + b"\xff" + content[middle + 1 :]))
    sample = read_sample(tmp_path, dataset)
    # The readable rows of this shard, and those of the other shard.
    assert 7 <= len(sample.counted.input_ids) < 16
    for shard in dataset.shards:
        (tmp_path / shard.name).unlink(missing_ok=True)
    assert read_sample(tmp_path, dataset) is None


def test_records_unlike_the_manifest_are_not_an_error(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [9, 8]})
    # The manifest lists another row length than that of the records.
    shards = [dataclasses.replace(shard, max_seq_length=16) for shard in dataset.shards]
    assert read_sample(tmp_path, dataclasses.replace(dataset, shards=shards)) is None


def test_no_sample_without_training_examples(tmp_path):
    dataset = write_dataset(tmp_path, {("validation", 0): [9]})
    assert read_sample(tmp_path, dataset) is None
