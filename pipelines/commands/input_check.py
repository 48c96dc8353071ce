"""A look at the input files before a job starts: kinds that cannot be read, and flags that would have no effect."""

import sys
from collections import Counter
from pathlib import PurePosixPath

from pipelines.corpus.reading import Input
from pipelines.sources import ReadOptions, SourceError, check_file
from pipelines.sources.kinds import stem_of

# Files looked at. A block of bzip2 takes 0.05 s to decompress, a file in an object store costs a request. What is not
# looked at here is recognized when it is read.
_FILES_OF_A_SUFFIX = {"plain": 1_000, "compressed": 50, "remote": 3}
_FILES = {"plain": 5_000, "compressed": 200, "remote": 30}
# Of paths in a message: the most, and of more than one the most characters.
_NAMED = 3
_NAMED_CHARACTERS = 120


def check_inputs(inputs: list[Input], options: ReadOptions, field_flags: list[str]) -> None:
    """Look at the first bytes of input files; warn of a flag that has no effect on some of them.

    Args:
        inputs: every file to read.
        options: how it will be read.
        field_flags: the flags about fields on the command line, each with its value.

    Raises:
        SourceError: files are of a kind that holds no text, or a flag names a field where no file has any.
    """
    if options.input_format == "language_reference":
        has_fields = {inputs[0].path: False} if field_flags else {}
    else:
        has_fields = _check_files(_sample(inputs), options)
    without = [path for path, fields in has_fields.items() if not fields]
    if not field_flags or not without:
        return
    flags = " and ".join(field_flags)
    if len(without) == len(has_fields) == len(inputs):
        raise SourceError(
            f"{flags} cannot be applied: no --input file has fields ({_listing(without)}); leave the flag out, or name "
            "the correct --input_format, such as csv or jsonl"
        )
    print(
        f"warning: {flags} has no effect on {len(without):,} of {len(has_fields):,} input file(s)"
        f"{' looked at' if len(has_fields) < len(inputs) else ''}, which have no fields: {_listing(without)}",
        file=sys.stderr,
    )


def _check_files(inputs: list[Input], options: ReadOptions) -> dict[str, bool]:
    """Return {path: whether its format has fields}. Raise SourceError naming the files that cannot be read."""
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
            f" ({len(other_paths):,} more input file(s) cannot be read either: {_listing(other_paths)})"
            if other_paths
            else ""
        )
        raise SourceError(f"{problems[first]}{more}") from problems[first]
    return has_fields


def _sample(inputs: list[Input]) -> list[Input]:
    """Return the first files of each suffix, within the limits per path and per suffix."""
    seen: Counter[tuple[str, str]] = Counter()
    sample = []
    for file in inputs:
        place = "remote" if "://" in file.path else "compressed" if stem_of(file.path) != file.path.lower() else "plain"
        suffix = PurePosixPath(stem_of(file.path)).suffix
        if seen[place, suffix] < _FILES_OF_A_SUFFIX[place] and seen[place, "*"] < _FILES[place]:
            seen[place, suffix] += 1
            seen[place, "*"] += 1
            sample.append(file)
    return sample


def _listing(paths: list[str]) -> str:
    named = paths[:_NAMED]
    while len(named) > 1 and len(", ".join(named)) > _NAMED_CHARACTERS:
        named.pop()
    more = f" and {len(paths) - len(named):,} more" if len(paths) > len(named) else ""
    return ", ".join(named) + more
