"""Types of command line flags, for every command; their messages say what a value should be."""

import argparse


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


def positive_float(text: str) -> float:
    """A number above 0, such as 1e-4."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, such as 1e-4")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def boolean(text: str) -> bool:
    """True or false, as google-research/bert's flags are written."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"
