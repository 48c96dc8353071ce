"""Test the types of flags: the values that each accepts, and an error message that states them."""

import argparse
import math

import pytest

from beambert.common.command_line import flags


@pytest.mark.parametrize(
    ("parse", "good", "bad", "message"),
    [
        (flags.positive_int, {"1": 1, "007": 7}, ["0", "-1", "1.0", "", "x"], "is not a whole number from 1"),
        (flags.non_negative_int, {"0": 0, "12": 12}, ["-1", "0.5"], "is not a whole number from 0"),
        (flags.seed, {"0": 0, str(2**31 - 1): 2**31 - 1}, [str(2**31)], "is not a whole number from 0 to 2147483647"),
        (flags.positive_float, {"1e-4": 1e-4, "3": 3.0}, ["0", "-1", "inf", "nan", "x"], "is not a number above 0"),
        (flags.fraction, {"0": 0.0, "1": 1.0, ".5": 0.5}, ["-0.1", "1.1", "nan"], "is not a number from 0 to 1"),
        (flags.Number(0, 1), {"0": 0.0, "0.999": 0.999}, ["1", "-0.1"], "is not a number from 0 to below 1"),
        (flags.Number(0, math.inf), {"0": 0.0, "1e9": 1e9}, ["inf", "-1"], "is not a number from 0"),
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
