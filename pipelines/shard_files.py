"""Writes the records of one shard: TFRecord files, or Parquet, whole or absent."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from pipelines.examples import ExampleEncoder
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.writing import HashedFile, write_atomically


class ShardFile:
    """A shard being written; `examples`, `bytes` and `sha256` tell of it when it is closed."""

    def __init__(self, file: HashedFile, encoder: ExampleEncoder) -> None:
        self._file = file
        self._encoder = encoder
        self.examples = 0

    def write(self, features: dict[str, np.ndarray]) -> None:
        """Appends a batch of records.

        Args:
            features: by our own names, as `pipelines.shards.features_of` makes them.
        """
        self._file.write(self._encoder.encode(features))
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
    return ".parquet" if options.format == "parquet" else ".tfrecord"


@contextmanager
def create(path: str, options: PretrainingDataOptions, row_length: int, vocab_size: int) -> Iterator[ShardFile]:
    """Opens a shard for writing; after an error nothing is left of it.

    Args:
        path: the file to make, on any Beam filesystem.
        options: format, compression, names, raggedness and what features there are.
        row_length: L of this shard's rows.
        vocab_size: number of pieces.
    """
    encoder = ExampleEncoder(options, row_length, vocab_size)
    with write_atomically(path) as file:
        yield ShardFile(file, encoder)
