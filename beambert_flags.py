"""Types of command line flags, for every command; their messages say what a value should be. And which are places."""

import argparse
import math
from collections.abc import Callable, Iterator

# What a flag's help calls its value where that is a file, a directory, or a pattern of such.
PLACES = ("DIR", "DST", "FILE", "GLOB", "PATH", "SHARD", "SRC")
_NAME_OR_FILE = "NAME|FILE.json"


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


def positive_int(text: str) -> int:
    """A whole number from 1."""
    return _whole_number(text, 1)


def non_negative_int(text: str) -> int:
    """A whole number from 0."""
    return _whole_number(text, 0)


def seed(text: str) -> int:
    """A whole number from 0 that fits into an int32."""
    value = non_negative_int(text)
    if value >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not below {2**31}")
    return value


def _whole_number(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}")
    return value


def number(least: float, most: float, *, least_too: bool = True, most_too: bool = False) -> Callable[[str], float]:
    """The type of a flag: a number between two others, each of which may be one of them or not."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        above = value >= least if least_too else value > least
        below = value <= most if most_too else value < most
        if not (above and below):
            words = f"{'from' if least_too else 'above'} {least:g}"
            if most < math.inf:
                words += f" {'to' if most_too else 'to below'} {most:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {words}")
        return value

    return parse


positive_float = number(0.0, math.inf, least_too=False)
fraction = number(0.0, 1.0, most_too=True)


def boolean(text: str) -> bool:
    """True or false, as google-research/bert's flags are written."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"
