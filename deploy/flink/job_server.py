"""Beam's job server: a local Java process that translates a Beam pipeline to a Flink job and submits it.

Its jar comes from Maven Central or `MAVEN_REPOSITORY_URL`, and is kept in a cache outside the repository.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beambert.common import local_files
from beambert.common.local_files import open_atomic
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import listens, require_no_user

_MAIN = "org.apache.beam.runners.flink.FlinkJobServerDriver"
_SECONDS_TO_START = 120.0
_SECONDS_TO_END = 10.0
_SECONDS_TO_ANSWER = 60


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


def cache_directory() -> Path:
    """Return the download cache of Flink, in the cache directory of beambert."""
    return local_files.cache_directory() / "flink"


def repository() -> str:
    """Return the URL of the Maven repository: MAVEN_REPOSITORY_URL, or Maven Central.

    Raises:
        SubmitError: the URL has a user name or password.
    """
    from apache_beam.utils.subprocess_server import JavaJarServer

    url = (os.environ.get("MAVEN_REPOSITORY_URL") or JavaJarServer.MAVEN_CENTRAL_REPOSITORY).rstrip("/")
    require_no_user("MAVEN_REPOSITORY_URL", url)
    return url


def maven_path(coordinates: str) -> str:
    """Return the path of the jar of group:artifact:version in a Maven repository."""
    group, artifact, version = coordinates.split(":")
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def published_job_server(flink_version: str, beam_version: str, cache: Path | None = None) -> Path:
    """Download the single-jar job server that Beam publishes, and verify its published digest.

    Args:
        flink_version: Flink version, such as "1.19".
        beam_version: Beam version of this machine.
        cache: download cache; None for `cache_directory()`.

    Returns:
        The path of the jar.

    Raises:
        SubmitError: no jar is published for these versions, or the download fails.
    """
    path = maven_path(f"org.apache.beam:beam-runners-flink-{flink_version}-job-server:{beam_version}")
    folder = cache or cache_directory()
    jar = folder / path.rsplit("/", 1)[-1]
    if not jar.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(f"{repository()}/{path}.sha1", timeout=_SECONDS_TO_ANSWER) as answer:  # noqa: S310
                published = answer.read().decode("ascii").split()[0]
        except (urllib.error.URLError, OSError) as error:
            raise SubmitError(
                f"Beam's job server {path} is not available from {repository()} ({error}): set MAVEN_REPOSITORY_URL to "
                "a repository that has it, or give a local copy with --job_server_jar"
            ) from error
        fetch_jar(path, folder, published, "sha1")
    return jar


def fetch_jar(path: str, folder: Path, digest: str, algorithm: str = "sha256") -> Path:
    """Download a file of the Maven repository.

    Args:
        path: path in the repository, as of `maven_path`.
        folder: existing directory for the file.
        digest: expected digest in hexadecimal.
        algorithm: algorithm of the digest.

    Returns:
        The path of the file.

    Raises:
        SubmitError: the download fails, or the digest does not match; there is no file then.
    """
    url = f"{repository()}/{path}"
    target = folder / path.rsplit("/", 1)[-1]
    checksum = hashlib.new(algorithm)
    with open_atomic(target) as file:
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS_TO_ANSWER) as answer:  # noqa: S310
                while block := answer.read(1 << 20):
                    checksum.update(block)
                    file.write(block)
        except (urllib.error.URLError, OSError) as error:
            raise SubmitError(f"{url} cannot be downloaded ({error}): set MAVEN_REPOSITORY_URL to a mirror") from error
        if checksum.hexdigest() != digest:
            raise SubmitError(
                f"{url} has {algorithm} {checksum.hexdigest()}, expected {digest}; the download was not used"
            )
    return target
