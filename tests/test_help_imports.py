"""Test that `--help` of every command imports no slow package, such as Beam or TensorFlow."""

import subprocess
import sys

import beambert
from pipelines.sources import READERS
from pipelines.sources.input_formats import FORMATS

_SLOW = ("apache_beam", "google.cloud.storage", "keras", "pyarrow", "tensorflow")
# A program that prints the help of every command, and fails at the first one that imports a slow package.
_CODE = f"""
import sys, beambert
for command in ["", *beambert.COMMANDS]:
    try:
        code = beambert.main([*command.split(), "--help"])
    except SystemExit as end:
        code = end.code
    assert not code, (command, code)
    imported = sys.modules.keys() & {set(_SLOW)}
    assert not imported, (command, imported)
"""


def test_help_imports_nothing_slow():
    result = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(f"usage: beambert {command}" in result.stdout for command in beambert.COMMANDS)


def test_every_format_has_a_reader():
    assert ("auto", *READERS) == FORMATS
