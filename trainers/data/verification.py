"""Verify the shards of a dataset against its manifest. This file does not import TensorFlow."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from beambert.pipelines.dataset import Dataset, Shard
from beambert.pipelines.errors import DatasetError
from beambert.trainers.buckets.dataset_copies import shard_path, shard_size

_CHUNK = 1 << 22


def check_sizes(directory: Path, shards: Sequence[Shard]) -> None:
    """Check the sizes of the shards against the manifest.

    Raises:
        DatasetError: a shard is missing, or its size differs from the manifest.
    """
    for shard in shards:
        path = directory / shard.name
        size = shard_size(directory, shard.name)
        if size is None:
            raise DatasetError(f"{path} is missing, but listed in the manifest; copy it again or build the data again")
        if size != shard.bytes:
            raise DatasetError(
                f"{path} has {size} bytes, but the manifest lists {shard.bytes}; copy it again or build the data again"
            )


def verify(directory: Path, dataset: Dataset, progress: Callable[[int, int], None] | None = None) -> None:
    """Verify the SHA-256 of every shard against the manifest (`--verify`).

    Args:
        directory: dataset directory.
        dataset: the manifest.
        progress: called regularly with the number of bytes read and the total number of bytes.

    Raises:
        DatasetError: shards are missing, of another size, or corrupt; the message lists all corrupt shards.
    """
    check_sizes(directory, dataset.shards)
    done, total = 0, sum(shard.bytes for shard in dataset.shards)
    corrupt_shards = []
    for shard in dataset.shards:
        digest = hashlib.sha256()
        try:
            with shard_path(directory, shard.name).open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)
        except OSError as error:
            raise DatasetError(
                f"{directory / shard.name} cannot be read ({error}); copy it again or build the data again"
            ) from error
        if digest.hexdigest() != shard.sha256:
            corrupt_shards.append(shard.name)
    if corrupt_shards:
        raise DatasetError(
            f"{directory}: {len(corrupt_shards)} of {len(dataset.shards)} shards are corrupt, with a SHA-256 "
            "other than in "
            f"the manifest ({', '.join(corrupt_shards)}); copy them again or build the data again"
        )
