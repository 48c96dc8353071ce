"""Atomic writes on any Beam filesystem: a file is complete or absent.

`beambert_common.atomic_files` does the same for local files without Beam, and synchronizes them with the disk.
"""

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

# Glob for the names of `write_atomically`, in a directory: what a killed process leaves.
TEMPORARY = f"*.{'?' * 32}.tmp"


class HashedFile:
    """A write-only file that counts its bytes and computes their SHA-256."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._digest = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._raw.write(data)
        self._digest.update(data)
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is closed."""

    @property
    def sha256(self) -> str:
        """Return the hex digest of all that was written."""
        return self._digest.hexdigest()


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Raise the errors of Google's storage library in the body as OSError, as every other filesystem does."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("google."):
            raise OSError(f"{path}: {error}") from error
        raise


@contextmanager
def write_atomically(path: str) -> Iterator[HashedFile]:
    """Write under a temporary name beside `path` and rename at the end; after an error nothing is left.

    Where a filesystem's rename is copy and delete (object stores), the object appears whole all the same. The
    temporary name is fresh for every attempt, so that a retried or doubled bundle never writes into another's file.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with storage_errors(path):
        raw = None
        try:
            raw = FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED)
            with raw:
                yield HashedFile(raw)
            FileSystems.rename([temporary], [path])
        except BaseException:
            _abandon(raw)
            with suppress(BeamIOError, OSError), storage_errors(temporary):
                FileSystems.delete([temporary])
            raise


def _abandon(raw: BinaryIO | None) -> None:
    """Close a file whose closing failed.

    Google's writer stays open then, and tries once more whenever it is collected as garbage, in whatever thread: an
    unexpected object would appear.
    """
    if raw is not None and not raw.closed and hasattr(raw, "terminate"):
        with suppress(Exception):
            raw.terminate()


def write_text(path: str, text: str) -> None:
    """Write a small UTF-8 file atomically."""
    with write_atomically(path) as file:
        file.write(text.encode("utf-8"))


def read_bytes(path: str) -> bytes:
    """Read a small file into memory.

    Raises:
        FileNotFoundError: there is none.
    """
    with storage_errors(path):
        if not FileSystems.exists(path):
            raise FileNotFoundError(path)
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read()


def delete_matching(pattern: str) -> int:
    """Delete the files that match a glob and return their number."""
    with storage_errors(pattern):
        paths = [metadata.path for metadata in FileSystems.match([pattern])[0].metadata_list]
        if paths:
            FileSystems.delete(paths)
        return len(paths)
