"""Test the types of flags that are not numbers: the values that each accepts, and a message that states them."""

import argparse

import pytest

from beambert.common.command_line import flags


@pytest.mark.parametrize(
    ("parse", "good", "bad", "message"),
    [
        (
            flags.duration,
            {"2h": 7200.0, "90m": 5400.0, "1h30m": 5400.0, "45s": 45.0, "1.5h": 5400.0, "1d2h3m4s": 93784.0},
            ["", "2", "h", "2x", "-2h", "0s", "1m1h", "2 h", "1..5h", "1e3s", "9" * 400 + "h", "nanh"],
            "is not a duration, such as 2h, 90m, 1h30m or 45s",
        ),
        (flags.boolean, {"true": True, "False": False}, ["1", "yes", ""], "is neither true nor false"),
    ],
)
def test_what_a_flag_takes(parse, good, bad, message):
    assert {text: parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            parse(text)
