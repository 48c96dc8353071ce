"""Read pretraining examples from TFRecord (plain or gzip) and Parquet shards without TensorFlow.

TFRecord files of google-research/bert and TensorFlow Model Garden are also supported. The first bytes determine the
format. The messages are defined in tensorflow/core/example/example.proto and feature.proto.
"""

import gzip
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from pipelines.errors import DatasetError
from pipelines.instances.options import PretrainingDataOptions
from pipelines.io.tfrecord import read_records

_MODEL_GARDEN = PretrainingDataOptions(feature_names="model_garden", pack=True).names_of_features()
_OUR_NAMES = {theirs: ours for ours, theirs in _MODEL_GARDEN.items()}
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_ROWS_AT_A_TIME = 256
_VARINT, _BYTES_8, _BYTES, _BYTES_4 = 0, 1, 2, 5


def read_examples(path: str) -> Iterator[dict[str, np.ndarray]]:
    """Yield the features of every example by name: int64 or float32 arrays of one dimension.

    Args:
        path: shard on any Beam filesystem, read incrementally.

    Raises:
        DatasetError: the file is missing, corrupt (the message has the location), or not a shard.
    """
    try:
        raw = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except (OSError, BeamIOError) as error:
        raise DatasetError(f"{path} cannot be read ({error}); check the path") from error
    with raw:
        beginning = raw.read(4)
        raw.seek(0)
        # An empty file is a TFRecord shard without records; a Parquet file has a header.
        is_parquet = beginning == _PARQUET or path.endswith(".parquet")
        examples = _of_parquet(raw, path) if is_parquet else _of_tfrecord(raw, path, beginning)
        for number, features in enumerate(examples):
            if "input_ids" not in features:
                raise DatasetError(
                    f"{path}, record {number}: input_ids is missing (features: "
                    f"{', '.join(sorted(features)) or 'none'}); give a shard of pretraining examples"
                )
            yield features


def _of_tfrecord(raw: BinaryIO, path: str, beginning: bytes) -> Iterator[dict[str, np.ndarray]]:
    file = gzip.GzipFile(fileobj=raw) if beginning.startswith(_GZIP) else raw
    for offset, record in read_records(file, path):
        try:
            features = _parse_example(record)
        except (ValueError, IndexError, struct.error) as error:
            raise DatasetError(
                f"{path}: the record at byte {offset} is not a valid tf.train.Example ({error}); give a shard of "
                "pretraining examples"
            ) from error
        yield {_OUR_NAMES.get(name, name): values for name, values in features.items()}


def _of_parquet(raw: BinaryIO, path: str) -> Iterator[dict[str, np.ndarray]]:
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(raw, mode="r"))
        for batch in file.iter_batches(_ROWS_AT_A_TIME):
            columns = {}
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                values, starts = column, np.arange(len(column) + 1)
                if pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
                    starts = column.offsets.to_numpy() - column.offsets[0].as_py()
                    values = column.flatten()
                if pyarrow.types.is_integer(values.type) or pyarrow.types.is_floating(values.type):
                    columns[_OUR_NAMES.get(name, name)] = (values.to_numpy(zero_copy_only=False), starts)
            for row in range(batch.num_rows):
                yield {
                    name: _widest(values[starts[row] : starts[row + 1]]) for name, (values, starts) in columns.items()
                }
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not a complete Parquet file ({error}); copy it or build it again") from error


def _widest(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int64)


def _parse_example(record: bytes) -> dict[str, np.ndarray]:
    """Return the numeric features of a tf.train.Example by name, lists packed or not.

    Raises:
        ValueError, IndexError, struct.error: not a valid message.
    """
    features = {}
    for message in _parts(record, 1):
        for entry in _parts(message, 1):
            name = b"".join(_parts(entry, 1)).decode("utf-8")
            feature = b"".join(_parts(entry, 2))
            floats, integers = _parts(feature, 2), _parts(feature, 3)
            if floats:
                features[name] = np.concatenate([_floats(values) for values in floats])
            elif integers:
                features[name] = np.concatenate([_integers(values) for values in integers])
    return features


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, wire type, content) of every field of a protobuf message; a varint is returned as its bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        start, kind = position, key & 7
        if kind == _VARINT:
            _, position = _varint(message, position)
        elif kind == _BYTES:
            length, start = _varint(message, position)
            position = start + length
        elif kind in (_BYTES_8, _BYTES_4):
            position += 8 if kind == _BYTES_8 else 4
        else:
            raise ValueError(f"field {key >> 3} has wire type {kind}")
        if position > len(message):
            raise ValueError(f"field {key >> 3} is longer than the message")
        yield key >> 3, kind, message[start:position]


def _parts(message: bytes, number: int) -> list[bytes]:
    """Return the contents of all submessages or strings with a field number."""
    return [content for field, kind, content in _fields(message) if field == number and kind == _BYTES]


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a varint and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a varint has more than 10 bytes")


def _floats(message: bytes) -> np.ndarray:
    """Return the values of a FloatList: float32 [values]."""
    content = b"".join(
        content for field, kind, content in _fields(message) if field == 1 and kind in (_BYTES, _BYTES_4)
    )
    return np.frombuffer(content, "<f4").astype(np.float32)


def _integers(message: bytes) -> np.ndarray:
    """Return the values of an Int64List: int64 [values]."""
    content = b"".join(content for field, kind, content in _fields(message) if field == 1 and kind in (_BYTES, _VARINT))
    octets = np.frombuffer(content, np.uint8)
    if not len(octets):
        return np.zeros(0, np.int64)
    is_last = octets < 0x80
    if is_last.all():
        return octets.astype(np.int64)
    starts = np.concatenate([[0], np.flatnonzero(is_last[:-1]) + 1])
    index = np.arange(len(octets)) - np.repeat(starts, np.diff(np.append(starts, len(octets))))  # within the varint
    if not is_last[-1] or index.max() > 9:
        raise ValueError("a varint is incomplete")
    groups = (octets & 0x7F).astype(np.uint64) << (7 * index).astype(np.uint64)
    return np.add.reduceat(groups, starts).view(np.int64)
