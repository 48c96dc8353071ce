"""Copy the shards of a dataset in a bucket when they are read, up to a limit of the disk.

The local directory of such a dataset has its manifest and vocabulary, and beside it lies a list of the shards in the
bucket. A local dataset has no list, and its shards are read where they are.
"""

import contextlib
import functools
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from beambert.common.local_files import write_atomic
from beambert.common.typed_json import JsonError, read
from beambert.pipelines import dataset
from beambert.pipelines.io.output_directory import DATASET_MANIFEST
from beambert.trainers.buckets import cache
from beambert.trainers.buckets.objects import BucketObject
from beambert.trainers.errors import StorageError

MANIFEST = DATASET_MANIFEST
_ATTEMPTS = 3


class _List(TypedDict):
    """The content of the list: for each shard the size, the generation and the checksum of its object."""

    url: str
    shards: dict[str, tuple[int, int, str]]


def shard_names(directory: Path) -> frozenset[str]:
    """Return the names of the shards in the manifest of a dataset. Raise DatasetError if it cannot be read."""
    return frozenset(shard.name for shard in dataset.load(directory).shards)


def write_list(url: str, directory: Path, shards: Sequence[BucketObject]) -> None:
    """Write the list of the shards in a bucket, or remove the one of an earlier content of the directory.

    Raises:
        FileError: the list cannot be written.
    """
    path = _list_path(directory)
    if not shards:
        path.unlink(missing_ok=True)
        return
    content = {"url": url, "shards": {found.name: found[2:] for found in shards}}
    write_atomic(path, json.dumps(content).encode())


def shard_size(directory: Path, name: str) -> int | None:
    """Return the size of a shard in bytes, on the disk or in the bucket; None if it is missing."""
    listed = _listed(directory)
    if listed is not None:
        return listed["shards"][name][0] if name in listed["shards"] else None
    path = directory / name
    return path.stat().st_size if path.is_file() else None


def shard_path(directory: Path, name: str) -> Path:
    """Return the local path of a shard, after copying it from the bucket where its dataset is in one.

    The copies that were read longest ago are removed where all together exceed `BEAMBERT_CACHE_GB`.

    Raises:
        StorageError: the shard was replaced or deleted in the bucket, cannot be read, or is removed again and again.
        FileError: the copy cannot be written.
    """
    path = directory / name
    listed = _listed(directory)
    if listed is None or name not in listed["shards"]:
        return path
    found = BucketObject(name, f"{listed['url']}/{name}", *listed["shards"][name])
    for _ in range(_ATTEMPTS):
        # Another process may remove the copy at any time.
        with contextlib.suppress(FileNotFoundError):
            if not cache.is_current(found, path):
                _remove_oldest(directory, listed, cache.shard_bytes() - found.size)
                cache.copy_object(found, path)
            # The access time is the time of the last use; many disks do not record it by themselves.
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
            return path
    raise StorageError(
        f"other processes remove {path} while it is copied; give all of them a larger BEAMBERT_CACHE_GB and run the "
        "command again"
    )


def _remove_oldest(directory: Path, listed: _List, limit: int) -> None:
    """Remove the copies that were used longest ago until all together have at most `limit` bytes."""
    copies = []
    for name in listed["shards"]:
        with contextlib.suppress(FileNotFoundError):
            status = (directory / name).stat()
            copies.append((status.st_atime_ns, status.st_size, name))
    total = sum(size for _, size, _ in copies)
    for _, size, name in sorted(copies):
        if total <= limit:
            return
        (directory / name).unlink(missing_ok=True)
        total -= size


def _list_path(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.shards.json")


def _listed(directory: Path) -> _List | None:
    """Return the list of a directory; None for a local dataset.

    Raises:
        StorageError: the list cannot be read.
    """
    if not cache.is_input_copy(directory):
        return None
    path = _list_path(directory)
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return _read(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=16)
def _read(path: Path, _modified: int, _size: int) -> _List:
    try:
        return read(path, _List)
    except (JsonError, FileNotFoundError) as error:
        raise StorageError(f"{path}: {error}; remove it and run the command again") from error
