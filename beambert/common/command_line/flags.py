"""Argument types of flags (numbers, booleans), flags that several commands have, and configurations made of flags."""

import argparse
import dataclasses
import math
import re
from typing import Any, Self

from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.word_rules import STRIP_ACCENTS

# Maximum number of characters of a value in a message.
_SHOWN_VALUE = 60
_MOST_DIGITS = 100
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def shortened(text: str) -> str:
    """Return a value for a message: in quotes, and truncated where it is long."""
    if len(text) <= _SHOWN_VALUE:
        return repr(text)
    return f"{text[: _SHOWN_VALUE // 2]!r}... ({len(text):,} characters)"


@dataclasses.dataclass(frozen=True)
class WholeNumber:
    """Argument type: an integer in decimal digits.

    Attributes:
        least: minimum.
        most: maximum.
    """

    least: int
    most: int = 2**31 - 1

    def __call__(self, text: str) -> int:
        """Return the number. Raise ArgumentTypeError where the text is not an integer or is out of range."""
        value = whole_number(text)
        if value is None or not self.least <= value <= self.most:
            raise argparse.ArgumentTypeError(f"{shortened(text)} is not {self}")
        return value

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


def whole_number(text: str) -> int | None:
    """Return the integer of a text of decimal digits with an optional sign; None for any other text.

    Python's `int` also accepts digits of every script, surrounding spaces and underscores, and raises ValueError for
    more than 4,300 digits.
    """
    return int(text) if len(text) <= _MOST_DIGITS and _WHOLE_NUMBER.fullmatch(text) else None


def real_number(text: str) -> float:
    """Return the number of a text in decimal notation, infinity where it is too large; NaN for any other text."""
    return float(text) if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text) else math.nan


positive_int = WholeNumber(1)
non_negative_int = WholeNumber(0)
# Seeds are stored as int32.
seed = WholeNumber(0, 2**31 - 1)
# Limits above every practical value, so that a typing error does not exhaust the memory.
sequence_length = WholeNumber(1, 65_536)
batch_size = WholeNumber(1, 1_048_576)
vocabulary_size = WholeNumber(1, 10_000_000)


@dataclasses.dataclass(frozen=True)
class Number:
    """Argument type: a finite number in decimal notation.

    Attributes:
        least, most: bounds.
        least_too, most_too: whether the bound is included.
    """

    least: float = -math.inf
    most: float = math.inf
    _: dataclasses.KW_ONLY
    least_too: bool = True
    most_too: bool = False

    def __call__(self, text: str) -> float:
        """Return the number. Raise ArgumentTypeError where the text is not a finite number or is out of range."""
        value = real_number(text)
        above = value >= self.least if self.least_too else value > self.least
        below = value <= self.most if self.most_too else value < self.most
        if not (math.isfinite(value) and above and below):
            raise argparse.ArgumentTypeError(f"{shortened(text)} is not {self}")
        return value

    def __str__(self) -> str:
        words = "a number"
        if self.least > -math.inf:
            words += f" {'from' if self.least_too else 'above'} {self.least:g}"
        if self.most < math.inf:
            words += f" {'to' if self.most_too else 'to below'} {self.most:g}"
        return words


positive_float = Number(0.0, math.inf, least_too=False)
fraction = Number(0.0, 1.0, most_too=True)

_DURATION = re.compile(r"(?=.)(?:([0-9.]+)d)?(?:([0-9.]+)h)?(?:([0-9.]+)m)?(?:([0-9.]+)s)?", re.ASCII)


def duration(text: str) -> float:
    """Return the seconds of a duration such as "2h", "90m", "1h30m" or "45s", above 0."""
    match = _DURATION.fullmatch(text)
    parts = [0.0 if part is None else real_number(part) for part in match.groups()] if match else []
    seconds = math.fsum(part * unit for part, unit in zip(parts, (86400, 3600, 60, 1), strict=False))
    if not 0.0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a duration, such as 2h, 90m, 1h30m or 45s")
    return seconds


def boolean(text: str) -> bool:
    """Return the boolean of "true" or "false" in any case, as in the flags of google-research/bert."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is neither true nor false")
    return text.lower() == "true"


class FlagConfig:
    """Base class of frozen dataclasses created from the flags of a command.

    The fields define the defaults of the flags, and `__post_init__` validates them.
    """

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Self:
        """Return the configuration of parsed flags; flags without a field are ignored.

        Raises:
            The errors of `__post_init__` of the class.
        """
        return cls(**flag_values(cls, args))


def flag_values(config: type[Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of flags by the field names of a dataclass; lists are converted to tuples."""
    values = {field.name: getattr(args, field.name) for field in dataclasses.fields(config) if field.name in args}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def add_added_tokens_argument(group: argparse._ArgumentGroup) -> None:
    """Add the flag of a file with added tokens."""
    group.add_argument(
        "--added_tokens",
        type=ANY_PATH,
        metavar="FILE",
        help="Tokens that are kept whole where a text contains them, one per line, in addition to those recorded with "
        "the model. The vocabulary must have them; extend-vocab adds those that it lacks",
    )


def add_word_rule_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of `beambert.common.word_rules.WordRuleFlags`."""
    group.add_argument(
        "--do_lower_case",
        type=boolean,
        metavar="true|false",
        help="Lowercase the text (default: as recorded with the model, else true if the vocabulary has no capitals)",
    )
    group.add_argument(
        "--strip_accents",
        choices=STRIP_ACCENTS,
        help="Strip accents; auto strips them if the text is lowercased (default: as recorded with the model, else "
        "auto)",
    )
    group.add_argument(
        "--tokenize_chinese_chars",
        type=boolean,
        metavar="true|false",
        help="Make each CJK ideograph a word (default: as recorded with the model, else true)",
    )
