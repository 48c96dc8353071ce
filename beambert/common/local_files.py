"""Local files: atomic writes, reads of bounded size, and the cache directory.

An atomic write leaves a complete file or none, also after a power failure. `beambert.pipelines.io.atomic_files` does
the same on any Beam filesystem, and `beambert.pipelines.io.output_file` for output files of flags, which are replaced
only with --overwrite. This file imports only the standard library.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from beambert.common import file_errors

# Far above the size of a description, vocabulary or index of any model or dataset; the decoded content takes several
# times as much memory.
_LARGEST = 100_000_000
# Temporary names of `open_atomic`.
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.unfinished")


def synchronize(path: Path) -> None:
    """Flush a file's content, or a directory's entries, to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the body ends.

    The temporary name is unique, so that concurrent writers of the same path do not interfere: the last one wins. A
    file lock distinguishes a file that is being written from one that a killed process left.

    Raises:
        FileError: the file cannot be written; the temporary file is removed.
    """
    with file_errors.writing(path):
        unfinished, opened = _new_file(path)
        with opened as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                unfinished.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise
        synchronize(path.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically: it has either the new or the previous content.

    Raises:
        FileError: the file cannot be written; the temporary file is removed.
    """
    with open_atomic(path) as file:
        file.write(content)


def _new_file(path: Path) -> tuple[Path, BinaryIO]:
    """Create and lock a temporary file in the directory of `path`."""
    while True:
        unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:16]}.unfinished")
        file = unfinished.open("xb")
        # On filesystems without locks, no file is treated as a leftover.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH)
        # Another process may have removed it as a leftover before it was locked.
        if unfinished.exists() or not path.parent.is_dir():
            return unfinished, file
        file.close()


def remove_unfinished(directory: Path) -> None:
    """Remove temporary files of `open_atomic` that killed processes left in a directory."""
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError), path.open("rb") as file:
                # Fails while the file is being written, and on filesystems without locks.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def read_small(path: Path, largest: int = _LARGEST) -> bytes:
    """Return the content of a file that is held in memory as a whole, such as a vocabulary.

    A link to an endless file, or one of zeros from an archive, is not read to its end.

    Raises:
        OSError: the file cannot be read, or has more than `largest` bytes.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        # A pipe has no size.
        size = status.st_size if stat.S_ISREG(status.st_mode) else largest
        content = file.read(min(size, largest) + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def cache_directory() -> Path:
    """Return the directory of downloads and of copies of remote files.

    It is that of the variable BEAMBERT_CACHE, else `beambert` in the user's cache directory.
    """
    base = os.environ.get("BEAMBERT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "beambert"
    return Path(base).expanduser()
