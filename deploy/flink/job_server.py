"""Beam's job server: a local Java process that translates a Beam pipeline to a Flink job and submits it."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import listens

_MAIN = "org.apache.beam.runners.flink.FlinkJobServerDriver"
_SECONDS_TO_START = 120.0
_SECONDS_TO_END = 10.0


def find_java(java: str) -> str:
    """Return the path of the Java executable. Raise SubmitError where it is not in PATH."""
    path = shutil.which(java)
    if not path:
        raise SubmitError(
            f"--java {java} is not in PATH, and Beam's job server needs Java: install Java 17 (on Debian: "
            "openjdk-17-jre-headless), or set --job_endpoint to a running job server"
        )
    return path


def free_port() -> int:
    """Return an unused port of this machine."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def command_line(java: str, jar: Path, master: str, ports: tuple[int, int], artifacts: Path) -> list[str]:
    """Return the command that starts a job server.

    Args:
        java: Java executable.
        jar: jar of the job server, or a directory of its jars.
        master: URL of the cluster.
        ports: the port for jobs and the port for artifacts.
        artifacts: directory of staged files.
    """
    program = ["-cp", f"{jar}/*", _MAIN] if jar.is_dir() else ["-jar", str(jar)]
    arguments = {
        "flink-master": master,
        "job-host": "localhost",
        "job-port": ports[0],
        "artifact-port": ports[1],
        "expansion-port": 0,
        "artifacts-dir": artifacts,
    }
    flags = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    return [java, "-XX:+UseSerialGC", *program, *flags]


@contextmanager
def job_server(java: str, jar: Path, master: str, folder: Path) -> Iterator[str]:
    """Run a job server while the body runs.

    Args:
        java: Java executable.
        jar: jar of the job server, or a directory of its jars.
        master: URL of the cluster.
        folder: directory of staged files and of the log, `job-server.log`.

    Yields:
        host:port for job submissions.

    Raises:
        SubmitError: the job server does not start.
    """
    ports = free_port(), free_port()
    log = folder / "job-server.log"
    with log.open("wb") as output:
        command = command_line(java, jar, master, ports, folder / "artifacts")
        # In its own session, so that Ctrl-C reaches only this process, which cancels the job first.
        server = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        address = f"localhost:{ports[0]}"
        deadline = time.monotonic() + _SECONDS_TO_START
        while not listens(address):
            if server.poll() is not None or time.monotonic() > deadline:
                reason = (
                    f"exit code {server.poll()}"
                    if server.poll() is not None
                    else f"no answer within {_SECONDS_TO_START:g} s"
                )
                raise SubmitError(f"Beam's job server did not start ({reason}): {_error_line(log)}")
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _error_line(log: Path) -> str:
    """Return the first line of the log with an error, or else its first line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    error_lines = [line for line in lines if "Exception" in line or "Error" in line]
    return (error_lines or lines or ["its log is empty"])[0][:300]
