"""Find the mistakes in a command line that argparse does not report, by the grammar of a parser."""

import argparse
import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from beambert_common.command_line.path_flags import path_type

# What word processors and web pages make of "-".
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


class Word(NamedTuple):
    """A flag with its values, or a word that is the value of no flag.

    Attributes:
        start: position in the list of arguments.
        flag: the flag without its value, or "".
        action: the parser's action of the flag; None for an unknown flag and without a flag.
        values: of the flag; without a flag, the word itself.
    """

    start: int
    flag: str
    action: argparse.Action | None
    values: list[str]


def parse_words(parser: argparse.ArgumentParser, argv: Sequence[str], stop: Collection[str] = ()) -> Iterator[Word]:
    """Yield the flags and the other words of a command line, in its order.

    Args:
        parser: of the flags, with the number of values of each.
        argv: the arguments.
        stop: words that are no further value of a flag that takes several.
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
    """Return whether argparse takes a word for a flag, known or not."""
    if not word.startswith("-") or word == "-":
        return False
    if word in parser._option_string_actions or word.partition("=")[0] in parser._option_string_actions:
        return True
    return " " not in word and not parser._negative_number_matcher.match(word)


def has_help_flag(parser: argparse.ArgumentParser, argv: Sequence[str]) -> bool:
    """Return whether the flag for help is among the arguments."""
    return any(isinstance(word.action, argparse._HelpAction) for word in parse_words(parser, argv))


def find_mistake(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | None:
    """Return what is wrong with how flags are typed, or None: a dash too few, or a path given twice.

    Args:
        parser: of the command.
        argv: the arguments as they were typed.
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
            remedy = "give it once" if word.action.nargs is None else f"give all values after one {word.flag}"
            return f"{word.flag} is given twice, as {before[-1]!r} and {' '.join(word.values)!r}; {remedy}"
        before.append(" ".join(word.values))
    return None


def find_unknown_flag(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | None:
    """Return the first flag that a parser does not define, or None."""
    return next((word.flag for word in parse_words(parser, argv) if word.flag and word.action is None), None)


def find_misplaced_flag(
    parser: argparse.ArgumentParser, argv: Sequence[str], other: argparse.ArgumentParser
) -> str | None:
    """Return the first flag in a command's arguments that only another parser defines, or None.

    Args:
        parser: of the command.
        argv: its arguments.
        other: of the command on the other side.
    """
    for word in parse_words(parser, argv):
        if word.flag and word.action is None and word.flag in other._option_string_actions:
            return word.flag
    return None


def describe_unexpected(parser: argparse.ArgumentParser, name: str, word: str) -> str:
    """Return what is wrong with a word that is neither a flag nor the value of one."""
    positionals = [str(action.metavar or action.dest) for action in parser._actions if not action.option_strings]
    takes = f"{' '.join(positionals)} and flags" if positionals else "flags only, and a value follows its flag"
    return f"unexpected argument {word!r}; {name} takes {takes}"
