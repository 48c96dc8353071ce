"""Unpack the zip archives of the released BERT models into a temporary directory."""

import contextlib
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.common.typed_json import shorten

# BERT large with optimizer slots has 4 GB.
_MOST_BYTES = 16 * 2**30
_MOST_FILES = 1000
# Errors of the library for a corrupt archive.
_CORRUPT = (zipfile.BadZipFile, zlib.error, UnicodeDecodeError, EOFError, NotImplementedError, RuntimeError)
# Those of the archives of the released models; others unpack megabytes to gigabytes.
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LONGEST_NAME = 255


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack an archive, without its directory structure, into a temporary directory.

    Raises:
        CheckpointError: the file is not a valid zip archive, contains links or paths outside its directory, is too
            large, or has two files with the same name.
    """
    with tempfile.TemporaryDirectory(prefix="beambert-") as temporary:
        folder = Path(temporary)
        try:
            with zipfile.ZipFile(path) as archive:
                for member in _checked(path, archive):
                    target = folder / PurePosixPath(member.filename).name
                    with archive.open(member) as source, target.open("wb") as file:
                        shutil.copyfileobj(source, file, 2**20)
        except _CORRUPT as error:
            raise CheckpointError(f"{path} is not a complete zip archive ({error}); download it again") from error
        yield folder


def file_names(path: Path) -> set[str]:
    """Return the names of an archive's files, without directories and without unpacking them.

    Raises:
        CheckpointError: as `unpacked`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {PurePosixPath(member.filename).name for member in _checked(path, archive)}
    except _CORRUPT as error:
        raise CheckpointError(f"{path} is not a complete zip archive ({error}); download it again") from error


def _checked(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    # `is_dir` fails for a member without a name.
    members = [member for member in archive.infolist() if not member.filename.endswith("/")]
    names = [PurePosixPath(member.filename) for member in members]
    for member, name in zip(members, names, strict=True):
        shown_name = shorten(repr(member.filename))
        # Some archive readers treat a backslash as a separator.
        is_elsewhere = name.is_absolute() or ".." in name.parts or "\\" in member.filename
        if is_elsewhere or not 0 < len(name.name.encode()) <= _LONGEST_NAME:
            raise CheckpointError(f"{path} contains {shown_name}, not a file in its directory; it is not unpacked")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise CheckpointError(f"{path} contains the link {shown_name}; it is not unpacked")
        if member.header_offset < 0:
            raise zipfile.BadZipFile(f"{shown_name} is before its start")
        if member.compress_type not in _COMPRESSIONS:
            raise CheckpointError(f"{path} has another compression than deflate; unpack it yourself if you trust it")
    # Resource forks that the macOS archiver adds.
    pairs = [(m, n) for m, n in zip(members, names, strict=True) if n.parts[0] != "__MACOSX"]
    if len({name.name for _, name in pairs}) < len(pairs):
        raise CheckpointError(f"{path} has several files with the same name; unpack it and give the model's directory")
    if len(pairs) > _MOST_FILES or sum(member.file_size for member, _ in pairs) > _MOST_BYTES:
        raise CheckpointError(f"{path} is too large for a BERT model; unpack it yourself if you trust it")
    return [member for member, _ in pairs]
