"""Test that `beambert plan` states whether the accelerator's utilization is assumed or from --mfu."""

import json
import re

import pytest

import beambert

FLAGS = ["plan", "--corpus_bytes", "1e9", "--accelerator", "a100"]


def printed(capsys, *flags: str) -> str:
    assert beambert.main([*FLAGS, *flags]) == 0
    return capsys.readouterr().out


def test_the_default_is_called_assumed_and_the_flag_is_named(capsys):
    (line,) = re.findall(r"^  utilization .*$", printed(capsys), re.MULTILINE)
    assert "0.45" in line
    assert "assumed, not measured" in line
    assert "--mfu" in line


@pytest.mark.parametrize("share", ["0.3", "0.45"])
def test_a_utilization_from_the_flag_is_not_called_assumed(capsys, share):
    text = printed(capsys, "--mfu", share)
    assert "assumed" not in text
    assert re.search(rf"^  utilization +{share} +fraction of the accelerator's peak, from --mfu$", text, re.MULTILINE)


def test_the_default_is_the_printed_utilization(capsys):
    by_default, given = (json.loads(printed(capsys, "--json", *flags))["Training"] for flags in ((), ("--mfu", "0.45")))
    assert by_default == given
    assert by_default["utilization"] == 0.45
