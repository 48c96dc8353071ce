"""Check, at the end of a data job, that no file was deleted or changed while it ran."""

from collections.abc import Mapping

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beambert.common.file_errors import AGAIN
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.atomic_files import list_files


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
