"""Find the input files of an evaluation: files, directories and glob patterns."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from beambert.bert_model.checkpoints.path_contents import contents_of
from beambert.trainers.errors import TaskDataError

# Directory of a macOS archive, with files that are no data.
_NO_DATA = "__MACOSX"


def find_files(flag: str, paths: Sequence[str], suffixes: Sequence[str]) -> list[Path]:
    """Return the files of a flag, each once, in the order of the flag, those of a directory or pattern sorted.

    Args:
        flag: name of the flag, for messages.
        paths: files with any suffix, directories, and patterns with *, ? or [...].
        suffixes: suffixes of the files to use in directories and their subdirectories. Hidden files are not used.

    Raises:
        TaskDataError: a path does not exist, a directory or pattern has no file, or a directory has files with several
            of the suffixes, such as notes beside the data.
    """
    # By real path: a file under several spellings is one file.
    files: dict[str, Path] = {}
    for text in paths:
        path = Path(text)
        if path.is_dir():
            found = _files_below(path, suffixes)
            if not found:
                names = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}" if len(suffixes) > 1 else suffixes[0]
                raise TaskDataError(f"{flag} {text} {contents_of(path)}, but no {names} file: give the files")
            several = sorted({file.suffix.lower() for file in found})
            if len(several) > 1:
                raise TaskDataError(
                    f"{flag} {text} has {' and '.join(several)} files: give a pattern such as *{several[0]}"
                )
        elif path.exists():
            found = [path]
        elif any(mark in text for mark in "*?["):
            matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - Path.glob rejects absolute patterns.
            found = [match for name in matches if (match := Path(name)).is_file()]
            if not found:
                raise TaskDataError(f"{flag} {text} matches no file: check the pattern, and quote it in the shell")
        else:
            raise TaskDataError(f"{flag} {text} does not exist: check the path")
        for file in found:
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def _files_below(directory: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the visible files with a suffix in a directory and its subdirectories, sorted."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.suffix.lower() in suffixes
        and path.is_file()
        and not any(part.startswith(".") or part == _NO_DATA for part in path.relative_to(directory).parts)
    )
