"""Write shards atomically as TFRecord, Parquet or ArrayRecord files."""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow.parquet

from beambert.pipelines.examples import array_record_files, parquet_examples
from beambert.pipelines.examples.example_encoder import ExampleEncoder
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import HashedFile, write_atomically

# Level 6 takes more than three times as long and makes files a tenth smaller.
_GZIP_LEVEL = 1


class ShardFile:
    """An open shard; `examples`, `bytes` and `sha256` are final once it is closed."""

    def __init__(self, file: HashedFile, append: Callable[[dict[str, np.ndarray]], object]) -> None:
        self._file = file
        self._append = append
        self.examples = 0

    def write(self, features: dict[str, np.ndarray]) -> None:
        """Append a batch of records.

        Args:
            features: arrays by feature, from `beambert.pipelines.examples.pretraining_examples.features_of`.
        """
        self._append(features)
        self.examples += len(features["input_ids"])

    @property
    def bytes(self) -> int:
        """Return the size of the file in bytes."""
        return self._file.bytes

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the file in hexadecimal."""
        return self._file.sha256


def extension(options: PretrainingDataOptions) -> str:
    """Return the suffix of shard file names, including the dot."""
    if options.format == "parquet":
        return ".parquet"
    if options.format == "array_record":
        return array_record_files.EXTENSION
    return ".tfrecord.gz" if options.compression == "gzip" else ".tfrecord"


@contextmanager
def create(path: str, options: PretrainingDataOptions, row_length: int, vocab_size: int) -> Iterator[ShardFile]:
    """Open a shard for writing; after an error, no file remains.

    Args:
        path: new file, on any Beam filesystem.
        options: options of the examples: format, compression, features, their names, and padding.
        row_length: length L of the rows.
        vocab_size: number of tokens in the vocabulary.
    """
    with write_atomically(path) as file:
        if options.format == "parquet":
            schema = parquet_examples.schema(options)
            with pyarrow.parquet.ParquetWriter(
                file, schema, compression="zstd", **parquet_examples.encodings(options)
            ) as writer:
                yield ShardFile(file, lambda features: writer.write_table(parquet_examples.table(features, options)))
            return
        encoder = ExampleEncoder(options, row_length, vocab_size)
        if options.format == "array_record":
            with array_record_files.create(file) as append:
                yield ShardFile(file, lambda features: append(encoder.serialize(features)))
            return
        if options.compression == "gzip":
            # Without file name and time in the header, the same records give the same bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as compressed:
                yield ShardFile(file, lambda features: compressed.write(encoder.encode(features)))
            return
        yield ShardFile(file, lambda features: file.write(encoder.encode(features)))
