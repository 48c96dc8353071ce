"""Argument types of flags: numbers, durations, booleans."""

import argparse
import dataclasses
import math
import re

# Maximum number of characters of a value in a message.
_SHOWN_VALUE = 60
_MOST_DIGITS = 100
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def in_quotes(text: str) -> str:
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
            raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not {self}")
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
            raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not {self}")
        return value

    def __str__(self) -> str:
        words = "a number"
        if self.least > -math.inf:
            words += f" {'from' if self.least_too else 'above'} {self.least:g}"
        if self.most < math.inf:
            words += f" {'to' if self.most_too else 'to below'} {self.most:g}"
        return words


_DURATION = re.compile(r"(?=.)(?:([0-9.]+)d)?(?:([0-9.]+)h)?(?:([0-9.]+)m)?(?:([0-9.]+)s)?", re.ASCII)


def duration(text: str) -> float:
    """Return the seconds of a duration such as "2h", "90m", "1h30m" or "45s", above 0."""
    match = _DURATION.fullmatch(text)
    parts = [0.0 if part is None else real_number(part) for part in match.groups()] if match else []
    seconds = math.fsum(part * unit for part, unit in zip(parts, (86400, 3600, 60, 1), strict=False))
    if not 0.0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a duration, such as 2h, 90m, 1h30m or 45s")
    return seconds


def boolean(text: str) -> bool:
    """Return the boolean of "true" or "false" in any case, as in the flags of google-research/bert."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is neither true nor false")
    return text.lower() == "true"
