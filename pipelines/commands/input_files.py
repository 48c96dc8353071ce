"""Find the input files of a data command, and check them before a job starts."""

import os
import platform
import sys
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.filesystems import FileSystems

from beambert.common.formatting import counted
from beambert.common.terminal import print_labeled
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import reads_files
from beambert.pipelines.formats.frames import stem_of
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.atomic_files import storage_errors
from beambert.pipelines.runner.job_output import absolute
from beambert.pipelines.sources.files import match_files
from beambert.pipelines.sources.readers import Input, find_format

_LANGUAGE_REFERENCE_BYTES = 500_000
# Maximum number of files checked. A block of bzip2 takes 0.05 s to decompress, a file in an object store costs a
# request. The other files are checked when they are read.
_MAX_FILES_PER_SUFFIX = {"plain": 1_000, "compressed": 50, "remote": 3}
_MAX_FILES = {"plain": 5_000, "compressed": 200, "remote": 30}
# Limits of the paths in a message: their number, and their characters where there are several.
_MAX_PATHS = 3
_MAX_PATH_CHARACTERS = 120


def find_inputs(input_format: str, patterns: list[str] | None, weights: list[float] | None, output: str) -> list[Input]:
    """Return the distinct input files, sorted by path.

    Args:
        input_format: Value of --input_format.
        patterns: Values of --input.
        weights: Values of --input_weights, one per pattern, or None.
        output: Value of --output, whose files are not read.

    Raises:
        SourceError: A pattern matches no file, or a flag contradicts another one.
    """
    if not reads_files(input_format):
        if patterns:
            raise SourceError(f"--input_format {input_format} reads no files; leave --input out")
        return [Input(input_format, _LANGUAGE_REFERENCE_BYTES, platform.python_version(), input_format, 1.0)]
    if not patterns:
        raise SourceError("--input is missing; give files or quoted patterns, such as --input 'texts/*.txt'")
    weights = weights or [1.0] * len(patterns)
    if len(weights) != len(patterns):
        raise SourceError(
            f"--input_weights has {counted(len(weights), 'value')} for {counted(len(patterns), '--input pattern')}; "
            "give one value per pattern, and quote the patterns so that beambert expands them"
        )
    inputs: dict[str, Input] = {}
    for pattern, weight in zip(patterns, weights, strict=True):
        for file in match_files([pattern]):
            path, size, changed = _describe(file)
            inputs.setdefault(path, Input(path, size, changed, pattern, weight))
    # A pattern such as '**/*' also matches the output of an earlier run.
    paths = _paths_outside(output, sorted(inputs)) if output else sorted(inputs)
    if not paths:
        raise SourceError(f"--input matches only files in --output {output}; give the files to read")
    return [inputs[path] for path in paths]


def _paths_outside(directory: str, paths: list[str]) -> list[str]:
    """Return the paths that are not below a directory, also not through linked directories."""
    names = (f"{absolute(directory)}/", f"{os.path.realpath(directory)}/")
    parents = {os.path.dirname(path) for path in paths}  # noqa: PTH120
    inside = {parent for parent in parents if f"{os.path.realpath(parent)}/".startswith(names)}
    return [path for path in paths if not path.startswith(names) and os.path.dirname(path) not in inside]  # noqa: PTH120


def describe_file(path: str) -> list[Any]:
    """Return [path, bytes, time of last change] of a file by its literal path.

    Raises:
        SourceError: The file cannot be read.
    """
    try:
        with storage_errors(path):
            return _describe(FileSystems.get_filesystem(path).metadata(path))
    except (BeamIOError, OSError) as error:
        raise SourceError(f"{path} cannot be read ({error}); check the path and its permissions") from error


def _describe(file: FileMetadata) -> list[Any]:
    return [file.path, file.size_in_bytes, file.last_updated_in_seconds]


def check_inputs(inputs: list[Input], options: ReadOptions, field_flags: list[str], url_flag: str = "") -> None:
    """Check the first bytes of input files, and warn if a field flag has no effect on some of them.

    Args:
        inputs: All input files.
        options: Options of reading.
        field_flags: The field flags of the command line, each with its value.
        url_flag: A flag that needs the URLs of documents, or "".

    Raises:
        SourceError: A file is of a kind without text; a field flag is given and no file has fields; or URLs are needed,
            and all files have fields of which none is kept as URL.
    """
    if not reads_files(options.input_format):
        has_fields = {inputs[0].path: False} if field_flags else {}
    else:
        has_fields = _check_files(_sample(inputs), options)
    without = [path for path, fields in has_fields.items() if not fields]
    if url_flag and has_fields and not without and not options.html_field and "url" not in options.kept_fields:
        raise SourceError(f"{url_flag} needs the URLs of the documents; keep them with --keep_fields url")
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
            has_fields[file.path] = find_format(file.path, options).has_fields
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
