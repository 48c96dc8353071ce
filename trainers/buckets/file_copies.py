"""Local copies of objects. The modification time of a copy is the generation of its object, which identifies it."""

import os
import shutil
from pathlib import Path

from beambert.trainers.buckets import objects
from beambert.trainers.buckets.objects import BucketObject


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


def is_current(found: BucketObject, path: Path) -> bool:
    """Return whether a file is a copy of an object's generation."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (status.st_size, status.st_mtime_ns) == (found.size, _stamp(found))


def _stamp(found: BucketObject) -> int:
    """Return a modification time in nanoseconds that is as unique as the generation, a time in microseconds."""
    return found.generation % 2**61
