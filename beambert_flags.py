"""Types of command line flags, for every command; their messages say what a value should be. And which are places."""

import argparse
import dataclasses
import math
import os
import re
import stat
from collections.abc import Callable, Iterator

# What a flag's help calls its value where that is a file, a directory, or a pattern of such.
PLACES = ("DIR", "DST", "FILE", "GLOB", "PATH", "SHARD", "SRC")
# Streams of the process, which commands that can take them check themselves.
_STREAMS = ("-", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null")
_STREAM_FOLDERS = ("/dev/fd/", "/proc/self/fd/")
# Limits of Linux and macOS: of a name, and of a whole path without its end mark.
_NAME_BYTES = 255
_PATH_BYTES = 4095
# Of a value, and of a path, in a message.
_SHOWN_VALUE = 60
_SHOWN_PATH = 100
_NAME_OR_FILE = "NAME|FILE.json"
_MOST_DIGITS = 100
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def shortened(text: str) -> str:
    """Return a value of a flag as a message shows it: in quotes, the middle left out where it is long."""
    if len(text) <= _SHOWN_VALUE:
        return repr(text)
    return f"{text[: _SHOWN_VALUE // 2]!r}... ({len(text):,} characters)"


def is_path(action: argparse.Action) -> bool:
    """Return whether a flag's value is a path, or may be one."""
    return action.metavar in PLACES or action.metavar == _NAME_OR_FILE


def empty_path(parser: argparse.ArgumentParser, args: argparse.Namespace) -> str | None:
    """Return the first flag for a path whose value is empty or blank, or None."""
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        values = value if isinstance(value, list) else [value]
        if is_path(action) and any(isinstance(path, str) and not path.strip() for path in values):
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
    """Return what a path is that is no regular file, such as "a directory"; "" for a file, and where there is none."""
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
            if isinstance(text, str) and _holds_surrogates(text):
                remedy = "rename the file or directory" if is_path(action) else "give it in UTF-8"
                return f"{_flag_of(action)} {ascii(text[:_SHOWN_PATH])[1:-1]} is not valid UTF-8; {remedy}"
    files = (action for action in parser._actions if action.metavar == "FILE" and action.dest.startswith("output"))
    output_files = set(map(_flag_of, files))
    for flag, place in places(parser, args):
        # An error message must not be as long as the path.
        short = place if len(place) <= _SHOWN_PATH else f"{place[:_SHOWN_PATH]}..."
        if "://" in place or place in _STREAMS or place.startswith(_STREAM_FOLDERS):
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
        if kind and (name := _endless_in(place)):
            return f"{flag} {short} holds {name}, {file_kind(f'{place}/{name}')}; move it to another directory"
    return None


def _endless_in(directory: str) -> str:
    """Return the name of a pipe or device in a directory, or ""; a command that looks for a file there would wait."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if not (entry.is_file() or entry.is_dir()))
    except OSError:
        return ""
    return next((name for name in names if file_kind(f"{directory}/{name}") in _ENDLESS), "")


def _holds_surrogates(text: str) -> bool:
    """Return whether a text holds what Python makes of bytes that are not UTF-8."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def places(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(flag, value) of every file or directory that flags name, in the order of the parser."""
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        values = value if isinstance(value, list) else [value]
        for place in values:
            is_file = action.metavar == _NAME_OR_FILE and str(place).endswith(".json")
            if isinstance(place, str) and (action.metavar in PLACES or is_file):
                yield _flag_of(action), place


def _flag_of(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


@dataclasses.dataclass(frozen=True)
class WholeNumber:
    """The type of a flag: a whole number in plain decimal digits.

    Attributes:
        least: the smallest number allowed.
        most: the largest number allowed.
    """

    least: int
    most: int = 2**31 - 1

    def __call__(self, text: str) -> int:
        """Return the number. Raises ArgumentTypeError with the range where the text is none, or out of range."""
        value = whole_number(text)
        if value is None or not self.least <= value <= self.most:
            raise argparse.ArgumentTypeError(
                f"{shortened(text)} is not a whole number from {self.least} to {self.most}"
            )
        return value


def whole_number(text: str) -> int | None:
    """Return the number that a text is in plain decimal digits, with a sign or without; None where it is none.

    Python's own `int` accepts digits of every script, blanks around them and underscores between them, and raises
    ValueError where there are more than 4,300.
    """
    return int(text) if len(text) <= _MOST_DIGITS and _WHOLE_NUMBER.fullmatch(text) else None


def real_number(text: str) -> float:
    """Return the number that a text is in plain decimal notation, infinite where it is too large; nan for another."""
    return float(text) if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text) else math.nan


positive_int = WholeNumber(1)
non_negative_int = WholeNumber(0)
# A seed is stored as an int32.
seed = WholeNumber(0, 2**31 - 1)
# Limits above every practical value, so that a typing error is an error at once and not an exhausted memory.
sequence_length = WholeNumber(1, 65_536)
batch_size = WholeNumber(1, 1_048_576)
vocabulary_size = WholeNumber(1, 10_000_000)
copies = WholeNumber(1, 1_000)
num_buckets = WholeNumber(1, 100_000)


def number(
    least: float = -math.inf, most: float = math.inf, *, least_too: bool = True, most_too: bool = False
) -> Callable[[str], float]:
    """The type of a flag: a finite number between two others, each of which may be one of them or not."""

    def parse(text: str) -> float:
        value = real_number(text)
        above = value >= least if least_too else value > least
        below = value <= most if most_too else value < most
        if not (math.isfinite(value) and above and below):
            words = "" if least == -math.inf else f" {'from' if least_too else 'above'} {least:g}"
            if most < math.inf:
                words += f" {'to' if most_too else 'to below'} {most:g}"
            raise argparse.ArgumentTypeError(f"{shortened(text)} is not a number{words}")
        return value

    return parse


positive_float = number(0.0, math.inf, least_too=False)
fraction = number(0.0, 1.0, most_too=True)


def boolean(text: str) -> bool:
    """True or false, as google-research/bert's flags are written."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is neither true nor false")
    return text.lower() == "true"
