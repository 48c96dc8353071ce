"""Test that `--help` of every command imports no slow package, such as Beam or TensorFlow."""

import json
import subprocess
import sys

import pytest

import beambert
from pipelines.sources import READERS
from pipelines.sources.input_formats import FORMATS

_SLOW = ("apache_beam", "google.cloud.storage", "keras", "pyarrow", "tensorflow")
_CODE = """
import json, sys, beambert
try:
    code = beambert.main(json.loads(sys.argv[1]))
except SystemExit as end:
    code = end.code
assert not code, code
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("command", ["", *beambert.COMMANDS])
def test_help_imports_nothing_slow(command):
    argv = json.dumps([*command.split(), "--help"])
    result = subprocess.run([sys.executable, "-c", _CODE, argv], capture_output=True, text=True, check=True)
    text, _, modules = result.stdout.rstrip().rpartition("\n")
    assert f"usage: beambert {command}" in text
    assert not set(json.loads(modules)).intersection(_SLOW)


def test_every_format_has_a_reader():
    assert ("auto", *READERS) == FORMATS
