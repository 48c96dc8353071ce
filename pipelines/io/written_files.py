"""Check that the files of a data job still exist when it ends: files may be deleted while it runs."""

from collections.abc import Mapping

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beambert_common.file_errors import AGAIN
from pipelines.errors import DatasetError


def is_written(path: str, size: int) -> bool:
    """Return whether a file exists and has the given size in bytes."""
    return _size(path) == size


def require_written(output: str, sizes: Mapping[str, int | None], remedy: str = AGAIN) -> None:
    """Check that files exist with the size that they were written with; one listing a folder.

    Args:
        output: the directory, on any Beam filesystem.
        sizes: bytes of every file by its name relative to `output`; None for any size.
        remedy: the end of the message.

    Raises:
        DatasetError: a file is missing or has another size; it names the first such file.
    """
    folders = sorted({f"{output}/{name}".rpartition("/")[0] for name in sizes})
    listed = FileSystems.match([f"{folder}/*" for folder in folders])
    listed_sizes = {file.path: file.size_in_bytes for match in listed for file in match.metadata_list}
    for name, size in sorted(sizes.items()):
        path = f"{output}/{name}"
        # A folder whose name is a pattern itself is not listed.
        actual_size = listed_sizes[path] if path in listed_sizes else _size(path)
        if actual_size is None:
            raise DatasetError(f"{output}/{name} was written and is missing now: it was removed meanwhile; {remedy}")
        if size is not None and actual_size != size:
            raise DatasetError(
                f"{output}/{name} was written with {size:,} bytes and has {actual_size:,} now: it was changed; {remedy}"
            )


def _size(path: str) -> int | None:
    """Return the bytes of a file, None if it does not exist."""
    try:
        return FileSystems.get_filesystem(path).size(path)
    except (BeamIOError, OSError):
        return None
