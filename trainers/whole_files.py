"""Files that are there whole or not at all, also after a power failure."""

import contextlib
import os
from pathlib import Path

import beambert_file_errors as file_errors


def synchronize(path: Path) -> None:
    """Waits until a file's content, or a directory's entries, are on the disk and outlast a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all; what was there before stays until then.

    Raises:
        FileError: it cannot be written; nothing is left of it.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    with file_errors.writing(path):
        try:
            unfinished.write_bytes(content)
            synchronize(unfinished)
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        synchronize(path.parent)
