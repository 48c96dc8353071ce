"""Files that are there whole or not at all, also after a power failure."""

import os
from pathlib import Path


def synchronize(path: Path) -> None:
    """Waits until a file's content, or a directory's entries, are on the disk and outlast a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all; what was there before stays until then."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(content)
    synchronize(unfinished)
    unfinished.replace(path)
    synchronize(path.parent)
