"""Find the command of a command line in a table of commands with their summaries."""

import difflib
import sys
from collections.abc import Iterable, Mapping

from beambert.common.command_line.command import usage_error

HELP = ("help", "--help", "-h")
VERSION = ("version", "--version", "-V")
# Of flags, also as a word processor writes them.
_DASHES = "-\u2013\u2014"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for a mistyped word, or "".

    Args:
        word: the mistyped word.
        known: valid words.
    """
    # Without dashes, which are equal in all flags: --model is not similar to --help.
    names = {name.lstrip(_DASHES): name for name in known}
    close = difflib.get_close_matches(word.lower().lstrip(_DASHES), names, n=1)
    return f"; did you mean {names[close[0]]}?" if close else ""


def summaries(commands: Mapping[str, tuple[str, str]], names: Iterable[str]) -> str:
    """Return a line with name and summary for each command."""
    return "\n".join(f"  {name:<18}{commands[name][1]}" for name in names)


def destinations(commands: Iterable[str], word: str) -> list[str]:
    """Return the two-word commands that start with a word."""
    return [name for name in commands if name.startswith(f"{word} ")]


def split_command(commands: Mapping[str, object], argv: list[str]) -> tuple[str, list[str]]:
    """Return the command's name and its arguments; exit with a one-line error for a mistake."""
    if argv[0].startswith("-"):
        name = next((word for word in argv[1:] if word in commands or destinations(commands, word)), None)
        if name:
            message = f"{argv[0]} precedes the command; put flags after it: beambert {name} {argv[0]} ..."
        else:
            message = f"unknown argument {argv[0]}{nearest(argv[0], (*HELP, *VERSION))}"
        sys.exit(usage_error("beambert", message, "beambert --help"))
    two_words = destinations(commands, argv[0])
    name = " ".join(argv[: 2 if two_words else 1])
    if name in commands:
        return name, argv[len(name.split()) :]
    if not two_words:
        sys.exit(usage_error("beambert", f"unknown command {name!r}{nearest(name, commands)}", "beambert --help"))
    where = [destination.partition(" ")[2] for destination in two_words]
    choices = f"{', '.join(where[:-1])} or {where[-1]}"
    if len(argv) == 1 or argv[1].startswith("-"):
        message = f"{argv[0]} requires a destination ({choices}), followed by its flags and the command"
    else:
        message = f"unknown destination {argv[1]!r}: use {choices}{nearest(argv[1], where)}"
    sys.exit(usage_error(f"beambert {argv[0]}", message, f"beambert {argv[0]} --help"))
