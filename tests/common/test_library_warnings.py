"""Test the warnings of libraries on the terminal of a command."""

import subprocess
import sys

from tests.conftest import without_progress

_CODE = """
import logging, sys
sys.argv[0] = "beambert"
# Beam is imported as without [gcp].
sys.modules["apitools"] = None
from beambert import cli
code = cli.main(["vocab", "--input", sys.argv[1], "--output", sys.argv[2], "--vocab_size", "30"])
assert "apache_beam.io.gcp.bigquery" in sys.modules
logging.getLogger("another").warning("heard")
silent = logging.getLogger("silent")
silent.addHandler(logging.NullHandler())
logging.getLogger("silent.part").warning("not heard")
logging.getLogger().addHandler(logging.NullHandler())
logging.warning("not heard")
sys.exit(code)
"""


def test_warnings_are_printed_unless_they_are_of_beam_or_have_another_handler(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("One sentence here. Another one.\n")
    result = subprocess.run(
        [sys.executable, "-c", _CODE, str(text), str(tmp_path / "vocab.txt")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert without_progress(result.stderr) == ["WARNING:another:heard"]
    assert result.returncode == 0
