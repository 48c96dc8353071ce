"""Run functions and commands in processes forked from pytest, which has imported everything.

A process costs a tenth of a second instead of the imports of TensorFlow and Beam, and a test may kill it. All are
forked from a server, itself a fork of pytest before the first test: a process that has used TensorFlow has threads,
which a fork does not copy.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")


def start_server() -> None:
    """Fork the server of `multiprocessing` from this process, instead of starting one that imports everything again."""
    server = forkserver._forkserver
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address := connection.arbitrary_address("AF_UNIX"))
        listener.listen()
        # The server ends when this process has closed the other end of the pipe.
        is_alive, alive = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(alive)
            try:
                forkserver.main(listener.fileno(), is_alive, preload=[])
            finally:
                os._exit(0)
    os.close(is_alive)
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, alive, pid


def start(log: Path, function: Callable, *arguments: object):
    """Start `function(*arguments)`, a function at the top level of a module; append its output to `log`."""
    process = _CONTEXT.Process(target=_call, args=(log, log, function, arguments), daemon=True)
    process.start()
    return process


def run(log: Path, function: Callable, *arguments: object, timeout: float = 120) -> int:
    """Call a function in a separate process; return its exit code, or minus the number of the signal that ended it."""
    process = start(log, function, *arguments)
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{arguments} still ran after {timeout} seconds: {log.read_text()}")
    return process.exitcode


class Running:
    """A command that runs in a process of its own.

    Args:
        argv: its arguments, after `beambert`.
        cwd: its current directory.
        env: its environment; None for the present one.
        before: a function at the top level of a module, called in the process before the command.
    """

    def __init__(
        self,
        *argv: object,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        before: Callable[[], object] | None = None,
    ) -> None:
        self.argv = [str(argument) for argument in argv]
        self._logs = tempfile.TemporaryDirectory(prefix="command-")
        self.stdout, self.stderr = (Path(self._logs.name) / name for name in ("stdout", "stderr"))
        arguments = (self.argv, str(cwd or Path.cwd()), dict(os.environ if env is None else env), before)
        self.process = _CONTEXT.Process(target=_call, args=(self.stdout, self.stderr, _command, arguments), daemon=True)
        self.process.start()
        self.pid = self.process.pid

    def output(self) -> str:
        """Return what it has printed to stdout and stderr so far."""
        logs = (self.stdout, self.stderr)
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists())

    def wait_for(self, is_there: Callable[[], object], timeout: float = 120) -> None:
        """Wait until a condition holds; fail if the command ends first."""
        deadline = time.monotonic() + timeout
        while not is_there():
            assert self.process.exitcode is None, f"{self.argv} ended early: {self.output()}"
            assert time.monotonic() < deadline, f"{self.argv} after {timeout} seconds: {self.output()}"
            time.sleep(0.005)

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal to the command."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal_number)

    def result(self, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Wait for the end; return the exit code and the output, as `subprocess.run`."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.kill()
            self.process.join()
            raise AssertionError(f"{self.argv} still ran after {timeout} seconds: {self.output()}")
        logs = (log.read_text(encoding="utf-8", errors="replace") for log in (self.stdout, self.stderr))
        return subprocess.CompletedProcess(self.argv, self.process.exitcode, *logs)


def command(*argv: object, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run beambert in a process of its own, as `subprocess.run` with text output does; options are those of Running."""
    return Running(*argv, **options).result(timeout)


def _call(stdout: Path, stderr: Path, function: Callable, arguments: tuple) -> None:
    for number, log in ((1, stdout), (2, stderr)):
        descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Those of pytest write to its own files.
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    # SIGINT acts as in the foreground of a terminal, regardless of where the tests run.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(function(*arguments))


def _command(argv: list[str], cwd: str, env: dict[str, str], before: Callable[[], object] | None) -> int:
    from beambert import cli
    from beambert.common import process

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["beambert", *argv]
    process.begin_startup()
    if before:
        before()
    return cli.main(argv)
