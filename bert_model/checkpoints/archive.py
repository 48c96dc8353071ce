"""The zip archives in which Google released BERT, unpacked into a temporary folder."""

import contextlib
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bert_model.checkpoints.stored_tensors import CheckpointError

# BERT large with its optimizer's slots is 4 GB.
_MOST_BYTES = 16 * 2**30
_MOST_FILES = 1000


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack an archive, subfolders left away, into a temporary folder.

    Raises:
        CheckpointError: it is no whole zip archive, holds links or names that lead elsewhere, is too large, or has two
            files of one name.
    """
    with tempfile.TemporaryDirectory(prefix="beambert-") as temporary:
        folder = Path(temporary)
        try:
            with zipfile.ZipFile(path) as archive:
                for member in _checked(path, archive):
                    target = folder / PurePosixPath(member.filename).name
                    with archive.open(member) as source, target.open("wb") as file:
                        shutil.copyfileobj(source, file, 2**20)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise CheckpointError(f"{path} is no whole zip archive ({error}); download it again") from error
        yield folder


def file_names(path: Path) -> set[str]:
    """Return the names of an archive's files, subfolders left away, without unpacking them.

    Raises:
        CheckpointError: it is refused, as by `unpacked`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {PurePosixPath(member.filename).name for member in _checked(path, archive)}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"{path} is no whole zip archive ({error}); download it again") from error


def _checked(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = [member for member in archive.infolist() if not member.is_dir()]
    names = [PurePosixPath(member.filename) for member in members]
    for member, name in zip(members, names, strict=True):
        # A backslash separates folders for some readers of archives.
        if name.is_absolute() or ".." in name.parts or "\\" in member.filename:
            raise CheckpointError(f"{path} has a file {member.filename!r} outside its folder; it is refused")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise CheckpointError(f"{path} has a link, {member.filename!r}; it is refused")
    # Forks of the files of a Mac, which its archiver adds.
    pairs = [(m, n) for m, n in zip(members, names, strict=True) if n.parts[0] != "__MACOSX"]
    if len({name.name for _, name in pairs}) < len(pairs):
        raise CheckpointError(f"{path} has several files of one name; unpack it and give the folder of one model")
    if len(pairs) > _MOST_FILES or sum(member.file_size for member, _ in pairs) > _MOST_BYTES:
        raise CheckpointError(f"{path} is too large to be a BERT; unpack it yourself if you trust it")
    return [member for member, _ in pairs]
