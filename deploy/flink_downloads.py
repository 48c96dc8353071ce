"""Flink and Beam's job server for it, fetched once into a folder outside the repository and checked against digests.

Flink comes from the Python package `apache-flink-libraries` through pip, Beam's jars from Maven Central or from what
`MAVEN_REPOSITORY_URL` names.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from deploy.errors import SubmitError
from deploy.flink_jars import JOB_SERVER_JARS

# The newest Flink that a job server of Beam's is to be had for in single jars.
FLINK_VERSION = "1.19.3"
_FLINK_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
# Of all that the package holds, what a cluster of Beam's needs.
_FLINK_JARS = (
    f"flink-dist-{FLINK_VERSION}.jar",
    *(f"log4j-{name}-2.17.1.jar" for name in ("1.2-api", "api", "core", "slf4j-impl")),
)
_CONNECTIONS = 8
_SECONDS_TO_ANSWER = 60


def cache_directory() -> Path:
    """Where downloads are kept: BEAMBERT_CACHE, or the user's cache."""
    base = os.environ.get("BEAMBERT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "beambert"
    return Path(base).expanduser() / "flink"


def repository() -> str:
    """The Maven repository: MAVEN_REPOSITORY_URL, or Maven Central."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    return (os.environ.get("MAVEN_REPOSITORY_URL") or JavaJarServer.MAVEN_CENTRAL_REPOSITORY).rstrip("/")


def maven_path(coordinates: str) -> str:
    """group:artifact:version -> the place of its jar in a Maven repository."""
    group, artifact, version = coordinates.split(":")
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def fetch_flink(cache: Path | None = None) -> Path:
    """The jars of Flink itself.

    Returns:
        A folder of jars, to be Flink's class path.

    Raises:
        SubmitError: they cannot be fetched, or are not what they should be.
    """
    folder = (cache or cache_directory()) / f"flink-{FLINK_VERSION}"
    if not folder.is_dir():
        with _made_whole(folder) as made, tempfile.TemporaryDirectory() as temporary:
            for name, content in _flink_package(Path(temporary)):
                with (made / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
            _require({path.name for path in made.iterdir()} == set(_FLINK_JARS), "apache-flink-libraries lacks jars")
    return folder


def _flink_package(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"apache-flink-libraries=={FLINK_VERSION} --hash=sha256:{_FLINK_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    result = subprocess.run(  # noqa: S603
        [
            *pip,
            "--no-binary=apache-flink-libraries",
            "--require-hashes",
            f"--requirement={requirements}",
            f"--dest={folder}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SubmitError(f"pip cannot fetch Flink {FLINK_VERSION}: {_last_line(result.stderr)}")
    with tarfile.open(folder / f"apache-flink-libraries-{FLINK_VERSION}.tar.gz") as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            content = archive.extractfile(member) if member.isfile() and name in _FLINK_JARS else None
            if content:
                yield name, content


def fetch_job_server(cache: Path | None = None) -> Path:
    """Beam's job server for Flink 1.19, with Flink's own jars.

    Returns:
        A folder of jars, to be its class path.

    Raises:
        SubmitError: they cannot be fetched, or are not what they should be.
    """
    flink = fetch_flink(cache)
    folder = flink.with_name(f"job-server-{FLINK_VERSION}")
    if not folder.is_dir():
        with _made_whole(folder) as made, ThreadPoolExecutor(_CONNECTIONS) as threads:
            jars = [line.split() for line in JOB_SERVER_JARS.split("\n") if line]
            list(threads.map(lambda jar: _fetch_jar(maven_path(jar[0]), made, jar[1]), jars))
            for jar in flink.iterdir():
                os.link(jar, made / jar.name)
    return folder


def published_job_server(flink_version: str, beam_version: str, cache: Path | None = None) -> Path:
    """The job server as Beam publishes it, one jar, checked against the digest published beside it.

    Args:
        flink_version: the first two numbers of it.
        beam_version: of Beam here.
        cache: where to keep it.

    Raises:
        SubmitError: there is none for these versions, or it cannot be fetched.
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
                f"Beam's job server {path} is not to be had from {repository()} ({error}); fetch it elsewhere and name "
                "it with --job_server_jar, or set MAVEN_REPOSITORY_URL to a repository that has it"
            ) from error
        _fetch_jar(path, folder, published, "sha1")
    return jar


def _fetch_jar(path: str, folder: Path, digest: str, algorithm: str = "sha256") -> None:
    """Downloads a file whole into a folder. Raises SubmitError if it has another digest."""
    url = f"{repository()}/{path}"
    target = folder / path.rsplit("/", 1)[-1]
    found = hashlib.new(algorithm)
    temporary = folder / f"{target.name}.{uuid.uuid4().hex}.tmp"
    with temporary.open("xb") as file:
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS_TO_ANSWER) as answer:  # noqa: S310
                while block := answer.read(1 << 20):
                    found.update(block)
                    file.write(block)
            _require(found.hexdigest() == digest, f"{url} has {algorithm} {found.hexdigest()}, not {digest}")
            temporary.replace(target)
        except (urllib.error.URLError, OSError) as error:
            raise SubmitError(f"{url} cannot be fetched ({error}); set MAVEN_REPOSITORY_URL to a mirror") from error
        finally:
            temporary.unlink(missing_ok=True)


def _require(fine: bool, message: str) -> None:
    if not fine:
        raise SubmitError(f"{message}; refusing to use it")


@contextmanager
def _made_whole(folder: Path) -> Iterator[Path]:
    """A new folder that gets its name when the body has filled it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    made.mkdir()
    try:
        yield made
        try:
            made.rename(folder)
        except OSError:
            # Another process was first.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
