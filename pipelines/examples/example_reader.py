"""Read pretraining examples from TFRecord (plain or gzip), Parquet and ArrayRecord shards without TensorFlow.

TFRecord files of google-research/bert and TensorFlow Model Garden are also supported. The first bytes determine the
format.
"""

import gzip
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import array_record_files
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.tfrecord import features_of, floats, integers, lists_of, read_records

_MODEL_GARDEN = PretrainingDataOptions(feature_names="model_garden", pack=True).names_of_features()
_OUR_NAMES = {theirs: ours for ours, theirs in _MODEL_GARDEN.items()}
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_ROWS_AT_A_TIME = 256


def read_examples(path: str) -> Iterator[dict[str, np.ndarray]]:
    """Yield the features of every example by name: int64 or float32 arrays of one dimension.

    Missing values of a Parquet file are NaN, so an array with missing integers is a float array.

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
        # An empty file is a TFRecord shard without records; the other formats have a header.
        if beginning == _PARQUET or path.endswith(".parquet"):
            examples = _of_parquet(raw, path)
        elif beginning == array_record_files.MAGIC or path.endswith(array_record_files.EXTENSION):
            examples = _of_array_record(raw, path)
        else:
            examples = _of_tfrecord(raw, path, beginning)
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
        yield _named_features(record, f"{path}: the record at byte {offset}")


def _of_array_record(raw: BinaryIO, path: str) -> Iterator[dict[str, np.ndarray]]:
    for number, record in array_record_files.read_records(raw, path):
        yield _named_features(record, f"{path}: record {number}")


def _named_features(record: bytes, place: str) -> dict[str, np.ndarray]:
    """Return the features of a tf.train.Example by our names. Raise DatasetError for another message."""
    try:
        features = _parse_example(record)
    except ValueError as error:
        raise DatasetError(
            f"{place} is not a valid tf.train.Example ({error}); give a shard of pretraining examples"
        ) from error
    return {_OUR_NAMES.get(name, name): values for name, values in features.items()}


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
                    is_missing = values.is_null().to_numpy(zero_copy_only=False)
                    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
                    columns[_OUR_NAMES.get(name, name)] = (numbers, is_missing, starts)
            for row in range(batch.num_rows):
                yield {
                    name: _widest(numbers[starts[row] : starts[row + 1]], is_missing[starts[row] : starts[row + 1]])
                    for name, (numbers, is_missing, starts) in columns.items()
                }
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not a complete Parquet file ({error}); copy it or build it again") from error


def _widest(values: np.ndarray, is_missing: np.ndarray) -> np.ndarray:
    """Return values as int64 or float32; missing values are NaN."""
    if is_missing.any():
        return np.where(is_missing, np.nan, values).astype(np.float32)
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int64)


def _parse_example(record: bytes) -> dict[str, np.ndarray]:
    """Return the numeric features of a tf.train.Example by name.

    Raises:
        ValueError: not a valid message.
    """
    features = {}
    for name, feature in features_of(record):
        _, float_lists, integer_lists = lists_of(feature)
        if float_lists or integer_lists:
            features[name.decode("utf-8")] = floats(float_lists) if float_lists else integers(integer_lists)
    return features
