"""Compare the shards of a dataset with its manifest; without TensorFlow."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.dataset import Dataset, Shard
from pipelines.errors import DatasetError

_CHUNK = 1 << 22


def check_sizes(directory: Path, shards: Sequence[Shard]) -> None:
    """Compare the files with the manifest, by size.

    Raises:
        DatasetError: a shard is missing, or is not as long as the manifest says.
    """
    for shard in shards:
        path = directory / shard.name
        if not path.is_file():
            raise DatasetError(
                f"{path} is missing, though the manifest lists it; copy it there or build the data again"
            )
        size = path.stat().st_size
        if size != shard.bytes:
            raise DatasetError(
                f"{path} has {size} bytes, the manifest says {shard.bytes}: it is truncated or not the file that was "
                "built; copy it again or build the data again"
            )


def verify(directory: Path, dataset: Dataset, progress: Callable[[int, int], None] | None = None) -> None:
    """Compare every byte of every shard with the manifest, by SHA-256 (`--verify`).

    Args:
        directory: where the shards' names start.
        dataset: the manifest.
        progress: called now and then with the bytes read and the bytes in all.

    Raises:
        DatasetError: shards are missing, too short or too long, or damaged; all damaged ones are named.
    """
    check_sizes(directory, dataset.shards)
    done, total = 0, sum(shard.bytes for shard in dataset.shards)
    damaged = []
    for shard in dataset.shards:
        digest = hashlib.sha256()
        try:
            with (directory / shard.name).open("rb") as file:
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
            damaged.append(shard.name)
    if damaged:
        raise DatasetError(
            f"{directory}: {len(damaged)} of {len(dataset.shards)} shards do not have the SHA-256 of the manifest "
            f"({', '.join(damaged)}): they are damaged; copy them again or build the data again"
        )
