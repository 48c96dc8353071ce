"""Find errors in a command line that argparse does not report."""

import argparse
import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from beambert.common.command_line.path_flags import path_type

# Characters that word processors and web pages substitute for "-".
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


class Word(NamedTuple):
    """A flag with its values, or a positional word.

    Attributes:
        start: index in the list of arguments.
        flag: the flag without its value; "" for a positional word.
        action: the parser's action of the flag; None for an unknown flag or a positional word.
        values: values of the flag, or the positional word.
    """

    start: int
    flag: str
    action: argparse.Action | None
    values: list[str]


def parse_words(parser: argparse.ArgumentParser, argv: Sequence[str], stop: Collection[str] = ()) -> Iterator[Word]:
    """Yield the flags and positional words of a command line, in order.

    Args:
        parser: parser that defines the flags and their numbers of values.
        argv: command-line arguments.
        stop: words that end the values of a flag with several values.
    """
    index = 0
    while index < len(argv):
        start, word = index, argv[index]
        index += 1
        if word == "--":
            yield from (Word(number, "", None, [argv[number]]) for number in range(index, len(argv)))
            return
        if not _is_flag(parser, word):
            yield Word(start, "", None, [word])
            continue
        flag, equals, value = (word, "", "") if word in parser._option_string_actions else word.partition("=")
        action = parser._option_string_actions.get(flag)
        values = [value] if equals else []
        if action is not None and not equals:
            most = _most_values(action)
            while index < len(argv) and len(values) < most and not _is_flag(parser, argv[index]):
                if action.nargs is not None and argv[index] in stop:
                    break
                values.append(argv[index])
                index += 1
        yield Word(start, flag, action, values)


def _most_values(action: argparse.Action) -> float:
    if isinstance(action.nargs, int):
        return action.nargs
    return 1 if action.nargs in (None, "?") else math.inf


def _is_flag(parser: argparse.ArgumentParser, word: str) -> bool:
    """Return whether argparse treats a word as a flag, known or unknown."""
    if not word.startswith("-") or word == "-":
        return False
    if word in parser._option_string_actions or word.partition("=")[0] in parser._option_string_actions:
        return True
    return " " not in word and not parser._negative_number_matcher.match(word)


def has_help_flag(parser: argparse.ArgumentParser, argv: Sequence[str]) -> bool:
    """Return whether the arguments contain -h or --help."""
    return any(isinstance(word.action, argparse._HelpAction) for word in parse_words(parser, argv))


def given_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the destinations of the flags on a command line, in order, without repetitions."""
    return tuple(dict.fromkeys(word.action.dest for word in parse_words(parser, argv) if word.action is not None))


def find_mistake(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | None:
    """Return an error for a flag with a wrong dash or a path flag that is given twice; None otherwise.

    Args:
        parser: parser of the command.
        argv: command-line arguments.
    """
    seen: dict[str, list[str]] = {}
    for word in parse_words(parser, argv):
        text = word.flag or word.values[0]
        bare = text.lstrip("-" + _DASHES)
        flag = f"--{bare}".partition("=")[0]
        if word.action is None and text != f"--{bare}" and text != bare and flag in parser._option_string_actions:
            return f"unknown argument {text.partition('=')[0]}; did you mean {flag}?"
        if word.action is None or not path_type(word.action) or isinstance(word.action, argparse._ExtendAction):
            continue
        before = seen.setdefault(word.action.dest, [])
        if before:
            remedy = "use it once" if word.action.nargs is None else f"put all values after one {word.flag}"
            return f"{word.flag} is given twice, as {before[-1]!r} and {' '.join(word.values)!r}; {remedy}"
        before.append(" ".join(word.values))
    return None


def find_unknown_flag(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | None:
    """Return the first flag that a parser does not define; None otherwise."""
    return next((word.flag for word in parse_words(parser, argv) if word.flag and word.action is None), None)


def find_misplaced_flag(
    parser: argparse.ArgumentParser, argv: Sequence[str], other: argparse.ArgumentParser
) -> str | None:
    """Return the first flag in a command's arguments that only another parser defines; None otherwise.

    Args:
        parser: parser of the command.
        argv: arguments of the command.
        other: parser of the other command.
    """
    for word in parse_words(parser, argv):
        if word.flag and word.action is None and word.flag in other._option_string_actions:
            return word.flag
    return None


def describe_unexpected(parser: argparse.ArgumentParser, name: str, word: str) -> str:
    """Return the error for a word that is neither a flag nor the value of a flag."""
    positionals = [str(action.metavar or action.dest) for action in parser._actions if not action.option_strings]
    takes = f"{' '.join(positionals)}, then flags" if positionals else "flags only, each followed by its value"
    return f"unexpected argument {word!r}; {name} takes {takes}"
