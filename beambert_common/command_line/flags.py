"""Types of flags for every command: numbers and truth values; their messages say what a value should be."""

import argparse
import dataclasses
import math
import re
from collections.abc import Callable

# Of a value in a message.
_SHOWN_VALUE = 60
_MOST_DIGITS = 100
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def shortened(text: str) -> str:
    """Return a value of a flag as a message shows it: in quotes, the middle left out where it is long."""
    if len(text) <= _SHOWN_VALUE:
        return repr(text)
    return f"{text[: _SHOWN_VALUE // 2]!r}... ({len(text):,} characters)"


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
        """Return the number. Raises ArgumentTypeError with the range where the text is not one, or out of range."""
        value = whole_number(text)
        if value is None or not self.least <= value <= self.most:
            raise argparse.ArgumentTypeError(
                f"{shortened(text)} is not a whole number from {self.least} to {self.most}"
            )
        return value


def whole_number(text: str) -> int | None:
    """Return the number that a text is in plain decimal digits, with a sign or without; None for another text.

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
num_partitions = WholeNumber(1, 100_000)


def number(
    least: float = -math.inf, most: float = math.inf, *, least_too: bool = True, most_too: bool = False
) -> Callable[[str], float]:
    """Return the type of a flag: a finite number between two others, each of which it may equal or not."""

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


def accept_old_name(group: argparse._ActionsContainer, flag: argparse.Action, old: str) -> None:
    """Accept the old spelling of a renamed flag too, for one release; help and messages show the new one only.

    Args:
        group: the parser or group that has the flag.
        flag: from `add_argument`.
        old: the old spelling, such as "--num_buckets".
    """
    group._option_string_actions[old] = flag


positive_float = number(0.0, math.inf, least_too=False)
fraction = number(0.0, 1.0, most_too=True)


def boolean(text: str) -> bool:
    """Return the truth value that a text is, as google-research/bert's flags are written."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is neither true nor false")
    return text.lower() == "true"
