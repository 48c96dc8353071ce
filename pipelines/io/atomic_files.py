"""Files on any Beam filesystem: atomic writes, listing, deletion, checks, and completion markers.

A file is complete or absent. `beambert.common.local_files` writes local files without Beam, and flushes them to disk.
Completion markers are small JSON files with a checksum. They record finished work, from which a stopped job resumes.
"""

import errno
import fnmatch
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beambert.common.file_errors import AGAIN
from beambert.common.typed_json import convert, decode
from beambert.pipelines.errors import DatasetError

T = TypeVar("T")

# Glob pattern of the temporary files of `write_atomically`, which a killed process leaves in a directory.
TEMPORARY = f"*.{'?' * 32}.tmp"


class HashedFile:
    """A write-only file that counts its bytes and computes their SHA-256 digest."""

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
        """Do nothing; closing flushes the file."""

    @property
    def sha256(self) -> str:
        """Return the hex digest of the bytes written."""
        return self._digest.hexdigest()


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Raise errors of Google's storage library in the body as OSError, as all other filesystems do."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("google."):
            raise OSError(f"{path}: {error}") from error
        raise


@contextmanager
def write_atomically(path: str) -> Iterator[HashedFile]:
    """Write to a temporary file beside `path` and rename it at the end; remove it after an error.

    In an object store a rename is a copy and a delete, which is atomic for the new object too. Every attempt has its
    own temporary name, so that retried or duplicated bundles never write to the same file.
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
            _terminate(raw)
            with suppress(BeamIOError, OSError), storage_errors(temporary):
                delete_files([temporary])
            raise


def _terminate(raw: BinaryIO | None) -> None:
    """Terminate the upload of a file whose closing failed.

    Google's writer stays open then, and tries again when it is garbage-collected, in any thread. An unexpected object
    would appear.
    """
    if raw is not None and not raw.closed and hasattr(raw, "terminate"):
        with suppress(Exception):
            raw.terminate()


def write_text(path: str, text: str) -> None:
    """Write a small UTF-8 file atomically."""
    with write_atomically(path) as file:
        file.write(text.encode("utf-8"))


def read_bytes(path: str, limit: int = -1) -> bytes:
    """Read a small file into memory.

    Args:
        path: The file, on any Beam filesystem.
        limit: Maximum number of bytes to read; -1 for all.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    with storage_errors(path):
        if not FileSystems.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read(limit)


def list_files(path: str) -> list[FileMetadata]:
    """Return the files of a directory whose names match a glob pattern.

    Args:
        path: The directory and, after the last slash, the pattern. The name of a local directory is literal: Beam
            treats characters such as [ in it as part of the pattern, and lists files of other directories.
    """
    if "://" in path:
        with storage_errors(path):
            return list(FileSystems.match([path])[0].metadata_list)
    folder, pattern = os.path.split(path)
    # A directory that cannot be listed has no files, as for Beam.
    _, _, names = next(os.walk(folder or "."), ("", [], []))
    files = []
    for name in fnmatch.filter(names, pattern):
        file = os.path.join(folder, name)  # noqa: PTH118
        # A file may be deleted while it is listed.
        with suppress(OSError):
            files.append(FileMetadata(file, os.path.getsize(file), os.path.getmtime(file)))  # noqa: PTH202, PTH204
    return files


def delete_files(paths: list[str]) -> None:
    """Delete files by their literal paths; Beam would delete every file that a local path matches as a pattern."""
    for path in paths:
        if "://" not in path:
            Path(path).unlink(missing_ok=True)
    if remote := [path for path in paths if "://" in path]:
        with storage_errors(remote[0]):
            FileSystems.delete(remote)


def delete_matching(path: str) -> int:
    """Delete the files that `list_files` returns for a path, and return their number."""
    paths = [metadata.path for metadata in list_files(path)]
    delete_files(paths)
    return len(paths)


def is_written(path: str, size: int) -> bool:
    """Return whether a file exists and has the given size in bytes."""
    return _size(path) == size


def require_written(output: str, sizes: Mapping[str, int | None], remedy: str = AGAIN) -> None:
    """Check that files exist with their recorded sizes, with one listing per directory.

    Args:
        output: The directory, on any Beam filesystem.
        sizes: Size in bytes of every file by its name relative to `output`; None for any size.
        remedy: The remedy in the message.

    Raises:
        DatasetError: A file is missing or has another size; the message names the first such file.
    """
    folders = sorted({f"{output}/{name}".rpartition("/")[0] for name in sizes})
    listed_sizes = {file.path: file.size_in_bytes for folder in folders for file in list_files(f"{folder}/*")}
    for name, size in sorted(sizes.items()):
        path = f"{output}/{name}"
        # A remote directory whose name is a glob pattern is not listed.
        actual_size = listed_sizes[path] if path in listed_sizes else _size(path)
        if actual_size is None:
            raise DatasetError(f"{output}/{name} is missing: it was removed after it was written; {remedy}")
        if size is not None and actual_size != size:
            raise DatasetError(
                f"{output}/{name} has {actual_size:,} bytes instead of {size:,}: it was changed after it was written; "
                f"{remedy}"
            )


def _size(path: str) -> int | None:
    """Return the size of a file in bytes, or None if it does not exist."""
    try:
        return FileSystems.get_filesystem(path).size(path)
    except (BeamIOError, OSError):
        return None


def write_marker(path: str, content: Any) -> None:
    """Write a completion marker.

    Args:
        path: the new file, on any Beam filesystem.
        content: JSON value.
    """
    text = json.dumps(content)
    write_text(path, json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}))


def read_marker(path: str, content_type: type[T]) -> T | None:
    """Return the content of a completion marker, or None if it is missing or corrupt, so that the work is repeated.

    Args:
        path: the file.
        content_type: type of the content, for `beambert.common.typed_json.convert`.
    """
    try:
        marker = decode(read_bytes(path), dict[str, str])
        content = marker["content"]
        if hashlib.sha256(content.encode()).hexdigest() != marker["sha256"]:
            return None
        return convert(json.loads(content), content_type)
    except (OSError, ValueError, KeyError):
        return None
