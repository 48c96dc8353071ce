"""Test a sample of the campaign of `make fuzz`: no hostile input causes a traceback, a hang or a wrong success."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_sample_of_the_campaign_has_no_failures(tmp_path):
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "100", "--seed", "0", "--folder", str(tmp_path / "fuzz")]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "100 cases of seed 0" in done.stdout
