"""Tests of reading shard records by index: the records that TensorFlow wrote, and both policies for corrupt records."""

import dataclasses
import gzip
import hashlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.dataset import Shard
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.tfrecord import content_at, find_records
from beambert.trainers.data.example_order import blocks_in_order, train_blocks
from beambert.trainers.data.shard_reader import CorruptRecordPolicy, RecordStream, ShardRecords, check_sizes, verify
from tests.trainers.pretraining_shards import OPTIONS, write_dataset

COMPRESSIONS = {"none": "", "gzip": "GZIP"}


def write(path, records, compression="none"):
    with tf.io.TFRecordWriter(str(path), COMPRESSIONS[compression]) as writer:
        for record in records:
            writer.write(record)
    content = path.read_bytes()
    return Shard(path.name, "train", 0, len(records), len(content), hashlib.sha256(content).hexdigest(), 128, 20)


def read(path, shard, compression="none", skip=False):
    records = ShardRecords(path, shard, compression, skip)
    return [records.record(number) for number in range(shard.examples)]


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@settings(max_examples=50, deadline=None)
@given(records=st.lists(st.binary(max_size=300), min_size=1, max_size=8), compression=st.sampled_from([*COMPRESSIONS]))
def test_what_tensorflow_wrote_is_read(tmp_path_factory, records, compression):
    path = tmp_path_factory.mktemp("shard") / "shard"
    shard = write(path, records, compression)
    assert read(path, shard, compression) == [(record, False) for record in records]
    content = gzip.decompress(path.read_bytes()) if compression == "gzip" else path.read_bytes()
    frames = find_records(content)
    assert frames.lost_at is None
    assert [content_at(content, *frame) for frame in zip(frames.offsets, frames.lengths, strict=True)] == records


# 20 records of 100 bytes, 116 with their framing.
RECORDS = [bytes([number]) * 100 for number in range(20)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_corrupt_record_is_named_or_the_next_good_one_takes_its_place(tmp_path, compression):
    path = tmp_path / "shard"
    shard = write(path, RECORDS, compression)
    whole = path.read_bytes()
    content = gzip.decompress(whole) if compression == "gzip" else whole
    for lost in ([3], [3, 4], [19], [0, 19]):
        damaged = bytearray(content)
        for number in lost:
            damaged[number * 116 + 50] ^= 1
        path.write_bytes(gzip.compress(damaged) if compression == "gzip" else damaged)
        with pytest.raises(DatasetError, match=rf"{path} has a corrupt record at byte {lost[0] * 116} "):
            read(path, shard, compression)
        expected = [(record, False) for record in RECORDS]
        for number in lost:
            following = next(n % 20 for n in range(number + 1, 40) if n % 20 not in lost)
            expected[number] = (RECORDS[following], True)
        assert read(path, shard, compression, skip=True) == expected


@pytest.mark.parametrize("place", [0, 3, 8, 11])
def test_no_record_is_found_after_a_corrupt_length(tmp_path, place):
    path = tmp_path / "shard"
    shard = write(path, RECORDS)
    flip(path, 4 * 116 + place)
    with pytest.raises(DatasetError, match=r"corrupt record at byte 464 \(no record boundary after it\)"):
        ShardRecords(path, shard, "none", skip=False)
    # The four records before replace the others, equally often.
    expected = [(RECORDS[number % 4], number >= 4) for number in range(20)]
    assert read(path, shard, skip=True) == expected
    flip(path, 2 * 116 + 50)
    assert [content for content, _ in read(path, shard, skip=True)][:8] == [RECORDS[n] for n in (0, 1, 3, 3) * 2]


def test_a_shard_without_a_valid_record_is_an_error_even_with_skip(tmp_path):
    path = tmp_path / "shard"
    shard = write(path, RECORDS[:2])
    flip(path, 50)
    flip(path, 166)
    with pytest.raises(DatasetError, match="has no valid record"):
        read(path, shard, skip=True)
    flip(path, 0)
    with pytest.raises(DatasetError, match="has no valid record"):
        read(path, shard, skip=True)


def test_a_compressed_shard_is_read_as_far_as_it_can_be(tmp_path):
    path = tmp_path / "shard"
    records = [np.random.default_rng(number).bytes(100_000) for number in range(40)]
    shard = write(path, records, "gzip")
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2)):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=r"corrupt record at byte .* of its decompressed content"):
            ShardRecords(path, shard, "gzip", skip=False)
        contents = [content for content, _ in read(path, shard, "gzip", skip=True)]
        good = next(number for number in range(40) if contents[number] != records[number])
        assert 5 <= good <= 20
        assert contents == [records[number % good] for number in range(40)]
    path.write_bytes(b"no gzip file")
    with pytest.raises(DatasetError, match="has no valid record"):
        ShardRecords(path, shard, "gzip", skip=True)


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 20 * 116 - 1), bit=st.integers(0, 7), compression=st.sampled_from([*COMPRESSIONS]))
def test_any_flipped_bit_is_detected_and_moves_no_other_record(tmp_path_factory, place, bit, compression):
    path = tmp_path_factory.mktemp("shard") / "shard"
    shard = write(path, RECORDS, compression)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    read_as = []
    try:
        read_as = read(path, shard, compression, skip=True)
    except DatasetError:
        # The length of the first record is corrupt, or the beginning of the compressed stream.
        assert compression == "gzip" or place < 12
    if compression == "none":
        with pytest.raises(DatasetError, match=f"corrupt record at byte {place // 116 * 116} "):
            read(path, shard)
    for number, (record, is_other) in enumerate(read_as):
        assert (record == RECORDS[number]) == (not is_other)
        assert record in RECORDS


def test_record_counts_other_than_in_the_manifest_are_errors(tmp_path):
    path = tmp_path / "shard"
    shard = write(path, RECORDS)
    for examples in (19, 21):
        with pytest.raises(DatasetError, match=f"has 20 records, but the manifest lists {examples}"):
            ShardRecords(path, dataclasses.replace(shard, examples=examples), "none", skip=True)
    path.unlink()
    with pytest.raises(DatasetError, match=r"shard cannot be read .* copy it again"):
        ShardRecords(path, shard, "none", skip=True)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_stream_crosses_blocks_and_may_leave_positions_out(tmp_path, shuffled):
    options = dataclasses.replace(OPTIONS, compression="gzip")
    dataset = write_dataset(tmp_path, {("train", 0): [5, 1, 4], ("train", 1): [6]}, options=options)
    shards = dataset.shards_of("train")
    blocks = (lambda: train_blocks(shards, 3, 0)) if shuffled else (lambda: blocks_in_order(shards))
    (*expected,) = RecordStream(tmp_path, dataset, blocks(), CorruptRecordPolicy()).read(0, 16, 0)
    assert len(set(expected)) == 16
    stream = RecordStream(tmp_path, dataset, blocks(), CorruptRecordPolicy())
    assert stream.read(1, 3, 0) == expected[1:4]
    assert stream.read(4, 0, 0) == []
    assert stream.read(8, 7, 0) == expected[8:15]
    if not shuffled:
        with pytest.raises(IndexError):
            stream.read(16, 1, 0)


def test_replaced_examples_are_counted_by_step(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [9]})
    flip(tmp_path / "train-0-0.tfrecord", 100)
    corrupt_records = CorruptRecordPolicy(skip=True)
    shards = dataset.shards_of("train")
    for _ in range(2):  # Read twice, counted once.
        stream = RecordStream(tmp_path, dataset, train_blocks(shards, 3, 0), corrupt_records)
        for step in range(27):
            stream.read(step, 1, step)
    counts = [corrupt_records.num_replaced_before(step) for step in range(28)]
    assert [counts[0], counts[9], counts[18], counts[27]] == [0, 1, 2, 3]
    assert np.diff(counts).max() == 1


def test_verification_names_every_corrupt_shard(tmp_path):
    dataset = write_dataset(tmp_path)
    seen = []
    verify(tmp_path, dataset, lambda done, total: seen.append((done, total)))
    total = sum(shard.bytes for shard in dataset.shards)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    flip(tmp_path / "train-0-1.tfrecord", 100)
    flip(tmp_path / "validation-1-0.tfrecord", 7)
    check_sizes(tmp_path, dataset.shards)
    with pytest.raises(
        DatasetError, match=r"2 of 6 shards are corrupt, .* \(train-0-1.tfrecord, validation-1-0.tfrecord\)"
    ):
        verify(tmp_path, dataset)
    (tmp_path / "train-0-1.tfrecord").unlink()
    with pytest.raises(DatasetError, match=r"train-0-1.tfrecord is missing"):
        verify(tmp_path, dataset)
