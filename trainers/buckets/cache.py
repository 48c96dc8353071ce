"""Local copies of objects, in the user's cache directory.

The modification time of a copy is the generation of its object, which identifies it.
"""

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from beambert.common.local_files import cache_directory
from beambert.trainers.buckets import objects
from beambert.trainers.buckets.objects import BucketObject
from beambert.trainers.errors import StorageError

_DEFAULT_GIGABYTES = 50.0
_DOWNLOADS = 4
# More than any disk has.
_MOST_BYTES = 2.0**62


def input_path(url: str) -> Path:
    """Return the local path of the copy of an input. Raise StorageError for a URL that is not valid."""
    return _local_path("inputs", url)


def output_path(url: str) -> Path:
    """Return the local path of an output, which is uploaded. Raise StorageError for a URL that is not valid."""
    return _local_path("outputs", url)


def is_input_copy(path: Path) -> bool:
    """Return whether a path is that of an input's copy."""
    return path.is_relative_to(cache_directory() / "inputs")


def state_path(path: Path) -> Path:
    """Return the file beside a local directory that lists the objects it was copied from or uploaded to."""
    return path.with_name(f".{path.name}.objects.json")


def copy_object(found: BucketObject, path: Path) -> None:
    """Copy an object to a file, with the generation as the modification time.

    Raises:
        StorageError: it cannot be read.
        FileError: the file cannot be written.
    """
    if path.is_dir():
        shutil.rmtree(path)
    objects.download(found, path)
    os.utime(path, ns=(path.stat().st_atime_ns, _stamp(found)))


def copy_objects(wanted: Iterable[BucketObject], directory: Path) -> None:
    """Copy objects to their names in a directory, several at a time. Raise as `copy_object` does."""
    with ThreadPoolExecutor(_DOWNLOADS) as threads:
        for copied in [threads.submit(copy_object, found, directory / found.name) for found in wanted]:
            copied.result()


def is_current(found: BucketObject, path: Path) -> bool:
    """Return whether a file is a copy of an object's generation."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (status.st_size, status.st_mtime_ns) == (found.size, _stamp(found))


def with_urls(text: str) -> str:
    """Return a message with the URLs of objects in place of the paths of their local copies."""
    for kind in ("inputs", "outputs"):
        text = text.replace(f"{cache_directory() / kind}/", objects.SCHEME)
    return text


def shard_bytes() -> int:
    """Return the limit of the shards of a dataset in the cache, in bytes.

    Raises:
        StorageError: the variable is not a number above 0.
    """
    value = os.environ.get("BEAMBERT_CACHE_GB", "")
    try:
        gigabytes = float(value) if value else _DEFAULT_GIGABYTES
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < float("inf"):
        raise StorageError(f"BEAMBERT_CACHE_GB {value!r} is not a number above 0; give gigabytes, such as 20")
    return int(min(gigabytes * 1e9, _MOST_BYTES))


def _stamp(found: BucketObject) -> int:
    """Return a modification time in nanoseconds that is as unique as the generation, a time in microseconds."""
    return found.generation % 2**61


def _local_path(kind: str, url: str) -> Path:
    bucket, name = objects.split_url(url)
    return cache_directory() / kind / bucket / name
