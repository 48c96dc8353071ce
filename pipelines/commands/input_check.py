"""Check the input files before a job starts: kinds that cannot be read, and field flags without effect."""

import sys
from collections import Counter
from pathlib import PurePosixPath

from beambert.common.formatting import counted
from beambert.common.terminal import print_labeled
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import reads_files
from beambert.pipelines.formats.frames import stem_of
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.file_splits import Input
from beambert.pipelines.sources.readers import check_file

# Maximum number of files checked. A block of bzip2 takes 0.05 s to decompress, a file in an object store costs a
# request. The other files are checked when they are read.
_MAX_FILES_PER_SUFFIX = {"plain": 1_000, "compressed": 50, "remote": 3}
_MAX_FILES = {"plain": 5_000, "compressed": 200, "remote": 30}
# Limits of the paths in a message: their number, and their characters where there are several.
_MAX_PATHS = 3
_MAX_PATH_CHARACTERS = 120


def check_inputs(inputs: list[Input], options: ReadOptions, field_flags: list[str]) -> None:
    """Check the first bytes of input files, and warn if a field flag has no effect on some of them.

    Args:
        inputs: All input files.
        options: Options of reading.
        field_flags: The field flags of the command line, each with its value.

    Raises:
        SourceError: A file is of a kind without text, or a field flag is given and no file has fields.
    """
    if not reads_files(options.input_format):
        has_fields = {inputs[0].path: False} if field_flags else {}
    else:
        has_fields = _check_files(_sample(inputs), options)
    without = [path for path, fields in has_fields.items() if not fields]
    if not field_flags or not without:
        return
    flags = " and ".join(field_flags)
    if len(without) == len(has_fields) == len(inputs):
        raise SourceError(
            f"{flags} has no effect: no --input file has fields ({_path_list(without)}); leave the flag out, or set "
            "the correct --input_format, such as csv or jsonl"
        )
    print_labeled(
        "warning: ",
        f"{flags} has no effect on {len(without):,} of {len(has_fields):,} input files"
        f"{' checked' if len(has_fields) < len(inputs) else ''}, which have no fields: {_path_list(without)}",
        sys.stderr,
    )


def _check_files(inputs: list[Input], options: ReadOptions) -> dict[str, bool]:
    """Return {path: whether its format has fields}. Raise SourceError for files that cannot be read."""
    has_fields: dict[str, bool] = {}
    problems: dict[str, SourceError] = {}
    for file in inputs:
        try:
            has_fields[file.path] = check_file(file.path, options)
        except SourceError as error:
            problems[file.path] = error
    if problems:
        first, *other_paths = problems
        more = (
            f" ({counted(len(other_paths), 'more input file')} cannot be read: {_path_list(other_paths)})"
            if other_paths
            else ""
        )
        raise SourceError(f"{problems[first]}{more}") from problems[first]
    return has_fields


def _sample(inputs: list[Input]) -> list[Input]:
    """Return the first files of each suffix, within the limits of the file's class and of its suffix."""
    seen: Counter[tuple[str, str]] = Counter()
    sample = []
    for file in inputs:
        file_class = (
            "remote" if "://" in file.path else "compressed" if stem_of(file.path) != file.path.lower() else "plain"
        )
        suffix = PurePosixPath(stem_of(file.path)).suffix
        if (
            seen[file_class, suffix] < _MAX_FILES_PER_SUFFIX[file_class]
            and seen[file_class, "*"] < _MAX_FILES[file_class]
        ):
            seen[file_class, suffix] += 1
            seen[file_class, "*"] += 1
            sample.append(file)
    return sample


def _path_list(paths: list[str]) -> str:
    first = paths[:_MAX_PATHS]
    while len(first) > 1 and len(", ".join(first)) > _MAX_PATH_CHARACTERS:
        first.pop()
    more = f" and {len(paths) - len(first):,} more" if len(paths) > len(first) else ""
    return ", ".join(first) + more
