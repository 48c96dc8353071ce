"""Test the demo: the commands as printed, and a short run without warnings."""

import shlex

import pytest

from beambert import cli
from beambert.deploy import demo
from beambert.pipelines import dataset


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("words", [["beambert"], ["beambert", *demo._BUILD_FLAGS, "a b " * 10, *demo._SENTENCES]])
def test_a_command_is_printed_as_a_shell_reads_it_on_short_lines(words, columns):
    lines = demo.shell_lines(words, columns)
    assert shlex.split(lines.replace("\\\n", "")) == words
    assert max(map(len, f"$ {lines}".splitlines())) <= columns


def test_the_data_of_the_demo_cause_no_warning(tmp_path):
    assert cli.main(["build", "--output", str(tmp_path), *demo._BUILD_FLAGS]) == 0
    assert dataset.load(tmp_path).counts["warnings"] == []
