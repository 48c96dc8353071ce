"""Start the process that forks the worker processes of the local runner, `forked_workers.py`.

This module does not import Beam: the process starts before the main process imports Beam, and both import it at the
same time.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from beambert.common.process import python_command, python_environment
from beambert.pipelines.runner.forked_workers import LENGTH

_COMMAND = python_command(str(Path(__file__).with_name("forked_workers.py")))
_MAX_LOG_BYTES = 100_000
_FLAG = "--direct_num_workers"
_MODE_FLAG = "--direct_running_mode"


class WorkerServer:
    """The process that forks workers.

    Raises:
        OSError: The process cannot be started.
    """

    def __init__(self) -> None:
        # A file without a name disappears with the processes that have it open, even if they are killed.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        # Beam sets a default timeout of sockets for Google Cloud, with which neither end would wait.
        self._socket.setblocking(True)
        theirs.setblocking(True)
        # Only the main process handles Ctrl-C. A process inherits the signal mask of the thread that starts it.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(  # noqa: S603
                _COMMAND, env=python_environment(), stdin=theirs.fileno(), stderr=self._log
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)
            theirs.close()

    def run_worker(self, environment: Mapping[str, str], counts: Sequence[int]) -> int:
        """Run a worker and wait for its end.

        Args:
            environment: Environment variables that configure Beam's `sdk_worker_main`.
            counts: Descriptor of the file of progress counts, or empty.

        Returns:
            Its exit code, negative for a signal; that of the server, if the server has ended.
        """
        message = json.dumps({**os.environ, **environment}).encode()
        ended, pipe = os.pipe()
        with os.fdopen(ended, "rb") as codes:
            with suppress(OSError), self._lock:  # It has ended.
                socket.send_fds(self._socket, [len(message).to_bytes(LENGTH)], [pipe, *counts])
                self._socket.sendall(message)
            os.close(pipe)
            return int(codes.read() or self._process.wait())

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process, and with it the workers."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def log(self) -> str:
        """Return the end of the standard error of the server and its workers."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _MAX_LOG_BYTES))
        return self._log.read().decode("utf-8", "replace")


_started: WorkerServer | None = None


def running() -> WorkerServer:
    """Return the server of this command, started now unless it runs."""
    global _started
    if _started is None or not _started.is_running:
        _started = WorkerServer()
    return _started


@contextmanager
def of_command(argv: Sequence[str]) -> Iterator[None]:
    """Start the server before the body if the flags require one, and kill it after the body.

    Args:
        argv: Arguments of a command, not checked yet. Only data commands have such flags.
    """
    words = [part for word in argv for part in word.split("=", 1)]
    workers = dict(pairwise([*words, ""])).get(_FLAG, "1")
    if workers != "1" and _MODE_FLAG not in words:
        with suppress(OSError):
            running()
    try:
        yield
    finally:
        if _started:
            _started.kill()
