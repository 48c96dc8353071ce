"""Simulate full disks with small file systems, or with limits on file sizes where mounting is forbidden."""

import contextlib
import hashlib
import io
import json
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# Patterns of the names of incomplete files.
TEMPORARY = ("*.tmp", ".*.unfinished*", "*.tempstate*", "*_temp*")
_DIFFERENT = ("logs/", "report.html", "metrics.jsonl", "state.json", "fingerprint.pb")
UNLIMITED = resource.RLIM_INFINITY


@contextlib.contextmanager
def small_disk(directory: Path, options: str) -> Iterator[Path]:
    """Mount an empty file system with options such as "size=8k"; skip the test where mounting is forbidden.

    The option "nr_inodes=5" limits the number of files.
    """
    directory.mkdir(exist_ok=True)
    mount(directory, options)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def mount(directory: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    try:
        result = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if result.returncode:
        pytest.skip("no file system can be mounted here")


def remount(directory: Path, options: str) -> None:
    """Change a small disk: "size=30m" makes room, "ro" makes it read-only."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(directory)], check=True)


def call(report: Path, argv: list[str], most_bytes: int = UNLIMITED) -> int:
    """Run a command whose files may not grow beyond `most_bytes`; write its exit code and stderr to `report`."""
    from beambert import cli

    errors = io.StringIO()
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, UNLIMITED))
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = cli.main(argv)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
    report.write_text(json.dumps([code, errors.getvalue()]), encoding="utf-8")
    return 0


def temporary_files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for name in TEMPORARY for path in directory.rglob(name))


def contents(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a directory, except files with times or TensorFlow's random number."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_file() and not any(part in name for part in _DIFFERENT):
            # Some files contain the path of their directory.
            content = path.read_bytes().replace(str(directory).encode(), b"DIRECTORY")
            found[name] = hashlib.sha256(content).hexdigest()
    return found
