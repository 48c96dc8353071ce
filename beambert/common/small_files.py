"""Read files that are held in memory as a whole: descriptions, vocabularies, indexes."""

import errno
import os
import stat
from pathlib import Path

# Far above that of any model or dataset; the decoded content takes several times as much memory.
LARGEST = 100_000_000


def read_small(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a file; a link to an endless file, or one of zeros from an archive, is not read to its end.

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
