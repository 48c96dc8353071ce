"""Flags whose values are paths: their types, and what is wrong with a path before any command reads it."""

import argparse
import dataclasses
import os
import stat
from collections.abc import Iterator

# Streams of the process, which commands that can take them check themselves.
_STREAMS = ("-", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null")
STREAM_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
# Limits of Linux and macOS: of a name, and of a whole path without its end mark.
_NAME_BYTES = 255
_PATH_BYTES = 4095
# Of a path in a message.
_SHOWN_PATH = 100


@dataclasses.dataclass(frozen=True)
class PathType:
    """The type of a flag whose value is a path, or a pattern of paths. The value stays as it was typed.

    Attributes:
        remote: whether it may be on any Beam filesystem, such as gs://BUCKET/NAME.
        output: "file" or "directory" for what the command writes, "" for what it reads.
        or_name: whether it may be the name of a preset too; a path ends in .json then.
    """

    remote: bool = False
    output: str = ""
    or_name: bool = False

    def __call__(self, text: str) -> str:
        """Return the value; `bad_path` checks all paths of a command at once."""
        return text


LOCAL_PATH = PathType()
ANY_PATH = PathType(remote=True)
LOCAL_OUTPUT_FILE = PathType(output="file")
ANY_OUTPUT_FILE = PathType(remote=True, output="file")
LOCAL_OUTPUT_DIRECTORY = PathType(output="directory")
ANY_OUTPUT_DIRECTORY = PathType(remote=True, output="directory")
MODEL_NAME_OR_PATH = PathType(or_name=True)


def path_type(action: argparse.Action) -> PathType | None:
    """Return the type of a flag whose value is a path, or may be one; None for another flag."""
    return action.type if isinstance(action.type, PathType) else None


def empty_path(parser: argparse.ArgumentParser, args: argparse.Namespace) -> str | None:
    """Return the first flag for a path whose value is empty or blank, or None."""
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        values = value if isinstance(value, list) else [value]
        if path_type(action) and any(isinstance(path, str) and not path.strip() for path in values):
            return _flag_of(action)
    return None


_FILE_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_ENDLESS = ("a named pipe (FIFO)", "a device")


def file_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of a path, such as "a directory"; "" for a regular file or a missing one."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - Path drops what makes "x/" a directory.
    except (OSError, ValueError):
        return ""
    return next((name for test, name in _FILE_KINDS if test(mode)), "")


def bad_path(parser: argparse.ArgumentParser, args: argparse.Namespace) -> str | None:
    """Return what is wrong with the first path that no file can have or that no command can read, or None.

    A pipe or a device may never end, and a command reads its files more than once. Other values are checked for what
    no file can hold: a manifest records the flags.
    """
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and _has_surrogates(text):
                remedy = "rename the file or directory" if path_type(action) else "give it in UTF-8"
                return f"{_flag_of(action)} {ascii(text[:_SHOWN_PATH])[1:-1]} is not valid UTF-8; {remedy}"
    written = (action for action in parser._actions if (typed := path_type(action)) and typed.output == "file")
    output_files = set(map(_flag_of, written))
    for flag, place in path_arguments(parser, args):
        # An error message must not be as long as the path.
        short = place if len(place) <= _SHOWN_PATH else f"{place[:_SHOWN_PATH]}..."
        if "://" in place or place in _STREAMS or place.startswith(STREAM_FOLDERS):
            continue
        if "\0" in place:
            return f"{flag} {short!r} holds a NUL character; give the path of a file"
        # A pattern may be longer than what it matches.
        longest = 0 if any(mark in place for mark in "*?[{") else max(map(len, os.fsencode(place).split(b"/")))
        if longest > _NAME_BYTES:
            return f"{flag} {short} has a name of {longest:,} bytes, and {_NAME_BYTES} is the most; give a shorter one"
        if len(os.fsencode(place)) > _PATH_BYTES:
            return f"{flag} {short} has {len(place):,} characters, and {_PATH_BYTES:,} is the most; give a shorter path"
        if flag in output_files:
            # A command may write to a pipe or a terminal, and checks that itself.
            continue
        kind = file_kind(place)
        if kind not in ("", "a directory"):
            return f"{flag} {short} is {kind}, not a file; write its content to a file and give that"
        if kind and (name := _blocking_file_in(place)):
            return f"{flag} {short} holds {name}, {file_kind(f'{place}/{name}')}; move it to another directory"
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
    """Return whether a text holds what Python makes of bytes that are not UTF-8."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def path_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield (flag, value) of every file or directory that flags name, in the order of the parser."""
    for flag, path, _ in typed_paths(parser, args):
        yield flag, path


def typed_paths(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[tuple[str, str, PathType]]:
    """Yield (flag, value, type) of every file or directory that flags name, in the order of the parser."""
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
