"""Argument types of path flags, and validation of paths before a command reads them."""

import argparse
import dataclasses
import os
import stat
from collections.abc import Iterator

# Standard streams, which are validated by the commands that accept them.
_STREAMS = ("-", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null")
STREAM_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
# Limits of Linux and macOS, in bytes: of a file name, and of a path without the terminating NUL.
_NAME_BYTES = 255
_PATH_BYTES = 4095
# Maximum number of characters of a path in a message.
_SHOWN_PATH = 100


@dataclasses.dataclass(frozen=True)
class PathType:
    """Argument type: a path or a glob pattern. The value is not changed.

    Attributes:
        remote: whether the path may be remote: gs://BUCKET/NAME, and for data commands on any Beam filesystem.
        output: "file" or "directory" for an output, "" for an input.
        or_name: whether the value may also be the name of a preset; paths end in .json then.
    """

    remote: bool = False
    output: str = ""
    or_name: bool = False

    def __call__(self, text: str) -> str:
        """Return the value; `bad_path` validates all paths of a command at once."""
        return text


LOCAL_PATH = PathType()
ANY_PATH = PathType(remote=True)
LOCAL_OUTPUT_FILE = PathType(output="file")
ANY_OUTPUT_FILE = PathType(remote=True, output="file")
LOCAL_OUTPUT_DIRECTORY = PathType(output="directory")
ANY_OUTPUT_DIRECTORY = PathType(remote=True, output="directory")
MODEL_NAME_OR_PATH = PathType(remote=True, or_name=True)


def path_type(action: argparse.Action) -> PathType | None:
    """Return the path type of a flag; None for a flag of another type."""
    return action.type if isinstance(action.type, PathType) else None


_FILE_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_ENDLESS = ("a named pipe (FIFO)", "a device")


def file_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of a path, such as "a directory"; "" for a regular or missing file."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - Path drops the trailing slash of "x/".
    except (OSError, ValueError):
        return ""
    return next((name for test, name in _FILE_KINDS if test(mode)), "")


def bad_path(parser: argparse.ArgumentParser, args: argparse.Namespace) -> str | None:
    """Return an error for the first invalid path of a command; None where all are valid.

    Pipes and devices are invalid as inputs, since they may be endless and commands read files more than once. Other
    values must be valid UTF-8, since manifests record the flags.
    """
    for action in parser._actions:
        kind, flag = path_type(action), _flag_of(action)
        value = getattr(args, action.dest, None)
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                continue
            if kind and not text.strip():
                return f"{flag} is empty; give a path"
            if _has_surrogates(text):
                remedy = "rename the file or directory" if kind else "use UTF-8"
                return f"{flag} {ascii(text[:_SHOWN_PATH])[1:-1]} is not valid UTF-8; {remedy}"
            if kind and (not kind.or_name or text.endswith(".json")) and (problem := _problem_of(text, kind)):
                # An error message must not be as long as the path.
                short = text if len(text) <= _SHOWN_PATH else f"{text[:_SHOWN_PATH]}..."
                return f"{flag} {short if short.isprintable() else repr(short)} {problem}"
    return None


def _problem_of(path: str, kind: PathType) -> str | None:
    """Return what is wrong with a path, with the remedy; None where it is valid."""
    if "://" in path or path in _STREAMS or path.startswith(STREAM_FOLDERS):
        return None
    if "\0" in path:
        return "contains a NUL character; use a valid path"
    # A pattern may be longer than the paths that it matches.
    longest = 0 if any(mark in path for mark in "*?[{") else max(map(len, os.fsencode(path).split(b"/")))
    if longest > _NAME_BYTES:
        return f"has a name of {longest:,} bytes, more than {_NAME_BYTES}; use a shorter name"
    if len(os.fsencode(path)) > _PATH_BYTES:
        return f"has {len(path):,} characters, more than {_PATH_BYTES:,} bytes; use a shorter path"
    if kind.output == "file":
        # It may be a pipe or a terminal, which the command validates.
        return None
    found = file_kind(path)
    if found not in ("", "a directory"):
        return f"is {found}, not a file; write its content to a file and use that"
    if found and (name := _blocking_file_in(path)):
        return f"contains {name}, {file_kind(f'{path}/{name}')}; move it to another directory"
    return None


def _blocking_file_in(directory: str) -> str:
    """Return the name of a pipe or device in a directory, or ""; a command that looks for a file there would wait."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if not (entry.is_file() or entry.is_dir()))
    except OSError:
        return ""
    return next((name for name in names if file_kind(f"{directory}/{name}") in _ENDLESS), "")


def _has_surrogates(text: str) -> bool:
    """Return whether a text contains surrogates, which represent bytes that are not UTF-8."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def typed_paths(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[tuple[str, str, PathType]]:
    """Yield (flag, value, type) of every path flag, in the order of the parser."""
    for action in parser._actions:
        kind = path_type(action)
        if kind is None:
            continue
        value = getattr(args, action.dest, None)
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and (not kind.or_name or path.endswith(".json")):
                yield _flag_of(action), path, kind


def _flag_of(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar)
