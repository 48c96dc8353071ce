"""Test the script that creates environments, with a stand-in for uv."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def environment(tmp_path: Path, uv: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run the script with a program `uv` of the shell code `uv`, whose arguments are appended to `calls`."""
    stand_in = tmp_path / "bin" / "uv"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{uv}\n')
    stand_in.chmod(0o755)
    return subprocess.run(
        ["sh", str(ROOT / "deploy" / "environment.sh"), "--build", "env", python, "-r", "list.txt"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_steps_are_printed_without_the_output_of_the_installer(tmp_path):
    result = environment(tmp_path, "echo noise; mkdir -p env")
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 3
    assert "noise" not in result.stdout
    assert [call.split()[:2] for call in (tmp_path / "calls").read_text().splitlines()] == [
        ["venv", "--seed"],
        ["pip", "install"],
        ["pip", "install"],
    ]
    assert (tmp_path / "env").is_dir()


def test_a_failed_installer_is_shown_and_leaves_no_environment(tmp_path):
    result = environment(tmp_path, 'mkdir -p env; [ "$1" = venv ] || { echo "no such package" >&2; exit 3; }')
    assert result.returncode == 3
    assert result.stderr == "no such package\n"
    assert not (tmp_path / "env").exists()


def test_a_missing_python_is_named(tmp_path):
    result = environment(tmp_path, "", python="/nowhere/python")
    assert result.returncode == 1
    assert "/nowhere/python is not" in result.stderr
    assert not (tmp_path / "calls").exists()
