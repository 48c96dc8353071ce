"""Run commands that may be stopped by Ctrl-C and save their state before they end."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_command(command: Sequence[str], what: str, directory: Path | None = None) -> None:
    """Run a command to its end, and exit with one line if it fails or is stopped.

    Args:
        command: the command. Ctrl-C reaches it too, as a process of the same terminal; it is waited for.
        what: description for the message.
        directory: its working directory; None for the current one.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(command, cwd=directory, env={**os.environ, "PYTHONPATH": path}) as process:
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                continue
    if process.returncode:
        stopped = process.returncode in (130, 143, -2, -15)
        print(f"{what} {'stopped' if stopped else 'failed'}; run the same command again to resume", file=sys.stderr)
        sys.exit(process.returncode if process.returncode > 0 else 1)


def run_beambert(*flags: str, directory: Path | None = None) -> None:
    """Run a command of beambert, as `run_command`."""
    run_command([sys.executable, "-m", "beambert", *flags], f"beambert {' '.join(flags[:2])}", directory)
