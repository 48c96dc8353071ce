"""Run `gcloud` as a process: stream its output, return its exit code and its error.

It is started with a list of arguments, never through a shell.
"""

import contextlib
import io
import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from beambert.pipelines.errors import SubmitError

# Time limit of a call that does not stream a log.
_CALL_SECONDS = 1800.0


def print_line(line: str) -> None:
    """Print a line and its newline at once.

    `print` writes them one after the other. A signal whose exception is raised in between would leave a line that the
    next one continues.
    """
    print(f"{line}\n", end="", flush=True)


class Result(NamedTuple):
    """The result of a command.

    Attributes:
        code: its exit code.
        lines: its output lines.
        errors: its standard error.
    """

    code: int
    lines: list[str]
    errors: str


class Lines:
    """The output lines of a running command.

    Iteration yields a line, or None after `poll_seconds` without a line.

    Attributes:
        code: exit code of the command, after the last line.
        errors: standard error of the command.
    """

    def __init__(self, command: list[str], poll_seconds: float | None) -> None:
        self.code, self.errors = 0, ""
        self._poll_seconds = poll_seconds
        self._process = start(command)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[str | None]:
        """Yield the lines."""
        while True:
            try:
                line = self._lines.get(timeout=self._poll_seconds)
            except queue.Empty:
                yield None
                continue
            if line is None:
                self.close()
                return
            yield line

    def close(self) -> None:
        """End the command if it is running."""
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # After the end of its output the command ends on its own.
                self._process.wait(0.0 if self._threads[0].is_alive() else 10.0)
        end(self._process)
        self._threads[1].join(1)
        self.code, self.errors = self._process.returncode, "".join(self._errors)

    def _read(self) -> None:
        assert isinstance(self._process.stdout, io.TextIOWrapper)
        # A carriage return, which progress bars write, does not end a line.
        self._process.stdout.reconfigure(newline="\n")
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\r\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-100:], line]


def run_together(commands: Mapping[str, list[str]], show: bool) -> dict[str, Result]:
    """Run commands at the same time and return their results by name.

    Args:
        commands: commands by name.
        show: whether to print the output lines, but for those that contain a tab, which are data.
    """
    running: dict[str, Lines] = {}
    outputs: dict[str, list[str]] = {name: [] for name in commands}
    try:
        for name, command in commands.items():
            running[name] = Lines(command, None)
        for name, lines in running.items():
            for line in lines:
                if line is not None:
                    outputs[name].append(line)
                    if show and "\t" not in line:
                        print_line(line)
    finally:
        for lines in running.values():
            lines.close()
    return {name: Result(lines.code, outputs[name], lines.errors) for name, lines in running.items()}


def start(command: list[str]) -> subprocess.Popen[str]:
    """Start a command in its own session.

    Raises:
        SubmitError: gcloud is not installed, or cannot be started.
    """
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Ctrl-C must reach this process only: gcloud finishes its current operation.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise SubmitError(
            "gcloud is not installed: install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install) and run "
            "gcloud auth login"
        ) from error
    except OSError as error:
        raise SubmitError(f"gcloud cannot be started ({error.strerror}); check the gcloud on PATH") from error


def call(command: list[str], patience: float = 0.0) -> tuple[int, str, str]:
    """Run a command and return its exit code, output and standard error.

    Args:
        command: the command and its arguments.
        patience: seconds that the command may continue after an interruption.
    """
    process = start(command)
    try:
        output, errors = process.communicate(timeout=_CALL_SECONDS)
    except subprocess.TimeoutExpired:
        end(process)
        return 124, "", f"ERROR: no answer within {_CALL_SECONDS:g} seconds"
    except BaseException:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=patience)
        end(process)
        raise
    return process.returncode, output, errors


def end(process: subprocess.Popen[str]) -> None:
    """End a command and its child processes, which share its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(10)


def reason_of(errors: str) -> str:
    """Return gcloud's error as one line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if line.startswith("ERROR:")), max(0, len(lines) - 3))
    text = " ".join(lines[first:]) or "no error message from gcloud"
    return re.sub(r"^ERROR: (\([\w.-]+\) )?", "", text)[:600]
