"""Test the reader of examples with intact and corrupt files that TensorFlow and pyarrow wrote."""

import contextlib
import gzip
import struct

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples.example_reader import read_examples

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), max_size=40)
FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=9)


def message(features: dict[str, list]) -> bytes:
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(float_list=tf.train.FloatList(value=values))
                if any(isinstance(value, float) for value in values)
                else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in features.items()
            }
        )
    ).SerializeToString()


def write(path, messages, compression="") -> str:
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for each in messages:
            writer.write(each)
    return str(path)


@settings(max_examples=60, deadline=None)
@given(
    examples=st.lists(st.fixed_dictionaries({"input_ids": INTEGERS, "weights": FLOATS, "é": INTEGERS}), max_size=4),
    compression=st.sampled_from(["", "GZIP"]),
)
def test_what_tensorflow_wrote_is_read(tmp_path_factory, examples, compression):
    path = write(tmp_path_factory.mktemp("reader") / "shard", map(message, examples), compression)
    read = list(read_examples(path))
    assert len(read) == len(examples)
    for features, expected in zip(read, examples, strict=True):
        for name, values in expected.items():
            there = features.get(name, np.zeros(0))
            assert there.tolist() == values
            if len(values) and name != "weights":
                assert there.dtype == np.int64


def test_lists_that_are_not_packed_are_read_too(tmp_path):
    def varint(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80, value >> 7]) if value > 127 else bytes([value])

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    # Single values, then packed ones: a parser must accept both encodings in one field.
    integers = b"".join(b"\x08" + varint(value) for value in (5, 300, 7)) + field(1, varint(300) + varint(9))
    floats = b"".join(b"\x0d" + struct.pack("<f", value) for value in (0.5, -2.0))
    entries = field(1, field(1, b"input_ids") + field(2, field(3, integers)))
    entries += field(1, field(1, b"weights") + field(2, field(2, floats)))
    content = field(1, entries)
    assert tf.train.Example.FromString(content).features.feature["input_ids"].int64_list.value == [5, 300, 7, 300, 9]
    (features,) = read_examples(write(tmp_path / "shard", [content]))
    assert features["input_ids"].tolist() == [5, 300, 7, 300, 9]
    assert features["weights"].tolist() == [0.5, -2.0]


def test_names_of_model_garden_become_ours(tmp_path):
    content = message({"input_word_ids": [2, 3], "input_type_ids": [0, 1], "masked_lm_ids": [7]})
    (features,) = read_examples(write(tmp_path / "shard", [content]))
    assert sorted(features) == ["input_ids", "masked_lm_ids", "segment_ids"]


def test_parquet_is_read_row_by_row(tmp_path):
    rows = [{"input_ids": list(range(n)), "segment_ids": [0] * n, "next_sentence_labels": n % 2} for n in range(600)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "shard.parquet", row_group_size=250)
    read = list(read_examples(str(tmp_path / "shard.parquet")))
    assert len(read) == 600
    for features, row in zip(read, rows, strict=True):
        assert features["input_ids"].tolist() == row["input_ids"]
        assert features["next_sentence_labels"].tolist() == [row["next_sentence_labels"]]
        assert features["input_ids"].dtype == np.int64


def test_missing_values_in_parquet_concern_their_row_only(tmp_path):
    rows = [{"input_ids": ids, "next_sentence_labels": 1} for ids in ([2, 3], None, [], [2, None, 3], [5])]
    rows[4]["next_sentence_labels"] = None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "shard.parquet")
    read = [features["input_ids"] for features in read_examples(str(tmp_path / "shard.parquet"))]
    assert [ids.tolist() for ids in read[:3]] == [[2, 3], [], []]
    assert np.isnan(read[3]).tolist() == [False, True, False]
    assert [ids.dtype.kind for ids in read] == list("iiifi")
    labels = [features["next_sentence_labels"] for features in read_examples(str(tmp_path / "shard.parquet"))]
    assert [label.dtype.kind for label in labels] == list("iiiif")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-3], r"ends within the record at byte (\d+): the file is truncated"),
        (lambda data: data[:7], "ends within the record at byte 0"),
        (lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:], "record at byte 0 does not match its checksum"),
        (
            lambda data: b"\xff" + data[1:],
            "record length at byte 0 does not match its checksum: not a TFRecord",
        ),
        (
            lambda data: data + b"junk and more junk",
            r"record length at byte \d+ does not match its checksum: the file",
        ),
        (lambda data: gzip.compress(data)[:-30], "cannot be read after byte .* corrupt or truncated"),
        (lambda data: b"PAR1" + data, "is not a complete Parquet file"),
        (lambda data: b"some text\n" * 9, "not a TFRecord file; give a shard"),
    ],
)
def test_error_states_the_position_of_corruption(tmp_path, damage, says):
    path = tmp_path / "shard"
    write(path, [message({"input_ids": list(range(40))})] * 5)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=says) as caught:
        list(read_examples(str(path)))
    assert str(path) in str(caught.value)


def test_other_records_and_missing_files_are_named(tmp_path):
    path = write(tmp_path / "text", [b"\x00\x01 not a message"])
    with pytest.raises(DatasetError, match=r"the record at byte 0 is not a valid tf\.train\.Example"):
        list(read_examples(path))
    path = write(tmp_path / "other", [message({"image": [1]})])
    with pytest.raises(DatasetError, match=r"record 0: input_ids is missing \(features: image\)"):
        list(read_examples(path))
    with pytest.raises(DatasetError, match="none cannot be read"):
        list(read_examples(str(tmp_path / "none")))


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_an_example_or_an_error(tmp_path_factory, content):
    path = write(tmp_path_factory.mktemp("reader") / "shard", [content])
    # Any other exception is a fault.
    with contextlib.suppress(DatasetError):
        list(read_examples(path))
