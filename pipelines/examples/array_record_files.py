"""Write and read ArrayRecord files: records with random access by index, which Grain reads.

The library opens files of the local filesystem only. A file is written to a local temporary directory and copied, and a
remote file is copied before it is read. This module does not import Beam.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from beambert.common.imports import is_installed
from beambert.pipelines.errors import DatasetError

if TYPE_CHECKING:
    from beambert.pipelines.io.atomic_files import HashedFile

EXTENSION = ".array_record"
# The first bytes of a Riegeli file, the container of ArrayRecord.
MAGIC = b"\x83\xaf\x70\xd1"
# A chunk has one record, so that a reader decompresses only the record that it needs; Grain requires it. Higher levels
# of zstd do not make such small chunks smaller.
_WRITER_OPTIONS = "group_size:1,zstd:1,max_parallelism:1"
# Without reading ahead, which costs memory and threads.
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_RECORDS_AT_A_TIME = 256
_CHUNK = 1 << 20


def require_package(subject: str = "--format array_record") -> None:
    """Raise DatasetError if the package of the format is not installed in this Python environment.

    Args:
        subject: what requires the package, for the message.
    """
    if not is_installed("array_record.python.array_record_module"):
        raise DatasetError(
            f"{subject} requires the package array-record, which is not installed; pip install 'beambert[array-record]'"
        )


@contextmanager
def create(file: "HashedFile") -> Iterator[Callable[[list[bytes]], None]]:
    """Yield a function that appends records; at the end, copy them to a file as an ArrayRecord file.

    Args:
        file: The open, empty file.

    Raises:
        DatasetError: The package is not installed, or the temporary file cannot be written.
    """
    require_package()
    from array_record.python.array_record_module import ArrayRecordWriter

    with tempfile.TemporaryDirectory(prefix="beambert-") as folder:
        path = Path(folder) / f"shard{EXTENSION}"
        with _write_errors(path):
            writer = ArrayRecordWriter(str(path), _WRITER_OPTIONS)

        def append(records: list[bytes]) -> None:
            with _write_errors(path):
                for record in records:
                    writer.write(record)

        try:
            yield append
        except BaseException:
            with suppress(RuntimeError):
                writer.close()
            raise
        with _write_errors(path):
            writer.close()
        with path.open("rb") as written:
            shutil.copyfileobj(written, file, _CHUNK)


def read_records(raw: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield (index, content) of every record of an ArrayRecord file.

    Args:
        raw: The file, open at its beginning.
        path: Path of the file; a local one is read directly.

    Raises:
        DatasetError: The file is corrupt, or the package is not installed.
    """
    if raw.read(len(MAGIC)) != MAGIC:
        # The library reads a file of zero records then.
        raise DatasetError(f"{path} is not an ArrayRecord file; copy it or build it again")
    raw.seek(0)
    require_package(path)
    if "://" not in path:
        yield from _read_local(path, path)
        return
    with tempfile.TemporaryDirectory(prefix="beambert-") as folder:
        copy = Path(folder) / f"shard{EXTENSION}"
        with copy.open("wb") as file:
            shutil.copyfileobj(raw, file, _CHUNK)
        yield from _read_local(str(copy), path)


def _read_local(file: str, path: str) -> Iterator[tuple[int, bytes]]:
    from array_record.python.array_record_module import ArrayRecordReader

    try:
        reader = ArrayRecordReader(file, _READER_OPTIONS)
        count = reader.num_records()
        for first in range(0, count, _RECORDS_AT_A_TIME):
            yield from enumerate(reader.read(first, min(first + _RECORDS_AT_A_TIME, count)), first)
        reader.close()
    except RuntimeError as error:
        reason = str(error) or "its end is missing"
        raise DatasetError(
            f"{path} is not a complete ArrayRecord file ({reason}); copy it or build it again"
        ) from error


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Raise the library's errors in the body as DatasetError."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition(";")[0]
        raise DatasetError(
            f"temporary file {path} cannot be written ({reason}); free some space there, or set TMPDIR to another "
            "directory"
        ) from error
