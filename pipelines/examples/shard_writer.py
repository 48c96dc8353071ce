"""Writes the records of one shard: TFRecord files, or Parquet, whole or absent."""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow.parquet

from pipelines.examples import parquet_examples
from pipelines.examples.example_encoder import ExampleEncoder
from pipelines.instances.options import PretrainingDataOptions
from pipelines.io.atomic_files import HashedFile, write_atomically

# Level 6 takes more than three times as long for files that are a tenth smaller.
_GZIP_LEVEL = 1


class ShardFile:
    """A shard being written; `examples`, `bytes` and `sha256` tell of it when it is closed."""

    def __init__(self, file: HashedFile, append: Callable[[dict[str, np.ndarray]], object]) -> None:
        self._file = file
        self._append = append
        self.examples = 0

    def write(self, features: dict[str, np.ndarray]) -> None:
        """Appends a batch of records.

        Args:
            features: by our own names, as `pipelines.examples.make_shards.features_of` makes them.
        """
        self._append(features)
        self.examples += len(features["input_ids"])

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self._file.bytes

    @property
    def sha256(self) -> str:
        """Hex digest of the file."""
        return self._file.sha256


def extension(options: PretrainingDataOptions) -> str:
    """How the names of shard files end, the dot included."""
    if options.format == "parquet":
        return ".parquet"
    return ".tfrecord.gz" if options.compression == "gzip" else ".tfrecord"


@contextmanager
def create(path: str, options: PretrainingDataOptions, row_length: int, vocab_size: int) -> Iterator[ShardFile]:
    """Opens a shard for writing; after an error nothing is left of it.

    Args:
        path: the file to make, on any Beam filesystem.
        options: format, compression, names, raggedness and what features there are.
        row_length: L of this shard's rows.
        vocab_size: number of pieces.
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
        if options.compression == "gzip":
            # No file name and no time in the header: the same records give the same bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as compressed:
                yield ShardFile(file, lambda features: compressed.write(encoder.encode(features)))
            return
        yield ShardFile(file, lambda features: file.write(encoder.encode(features)))
