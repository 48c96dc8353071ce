"""Atomic writes of local files: a file is complete or absent, also after a power failure.

`pipelines.io.atomic_files` does the same on any Beam filesystem, `pipelines.io.output_file` for the file of a flag,
which is not replaced unless --overwrite is given. This file imports nothing but the standard library.
"""

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from beambert_common import file_errors

# The temporary names of `open_atomic`.
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.unfinished")


def synchronize(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on the disk and outlast a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that gets its name when the body ends; what was there before stays until then.

    Its temporary name is unique, so that two processes that write the same file never mix: the last one wins. The
    kernel's lock on it, while it is written, distinguishes it from what a killed process left.

    Raises:
        FileError: it cannot be written; nothing is left of it.
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
    """Write a file atomically: it has the new content, or what was there before.

    Raises:
        FileError: it cannot be written; nothing is left of it.
    """
    with open_atomic(path) as file:
        file.write(content)


def _new_file(path: Path) -> tuple[Path, BinaryIO]:
    """Make and lock a file beside another, under a name of its own."""
    while True:
        unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:16]}.unfinished")
        file = unfinished.open("xb")
        # Where the filesystem has no locks, nothing is taken for a leftover.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH)
        # Before it was locked, another process may have taken it for a leftover.
        if unfinished.exists() or not path.parent.is_dir():
            return unfinished, file
        file.close()


def remove_unfinished(directory: Path) -> None:
    """Remove the files of `open_atomic` that killed processes left in a directory."""
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError), path.open("rb") as file:
                # Fails while the file is written, and where the filesystem does not support it.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
