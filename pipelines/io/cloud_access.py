"""Check, before a command starts, that its buckets can be reached and read.

Apache Beam and Google's libraries retry failed requests for minutes, print a traceback for every attempt, and continue
without credentials if they find none. This check makes one small request per bucket, within a few seconds.
"""

import contextlib
import functools
import importlib.util
import logging
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence

from beambert.pipelines.errors import AccessError
from beambert.pipelines.io import google_access
from beambert.pipelines.io.access_errors import reason_of, run_within, shown
from beambert.pipelines.io.google_access import FlagPath

# By URL scheme: the module that Beam requires, and the extra of Beam that installs it.
_PACKAGES = {
    "s3": ("boto3", "aws"),
    "hdfs": ("hdfs", "hadoop"),
    "azfs": ("azure.storage.blob", "azure"),
}
_LOGGERS = ("google", "apache_beam", "urllib3", "botocore", "boto3", "azure", "hdfs")


def require_access(paths: Iterable[FlagPath], beam_flags: Sequence[str] = (), *, credentials: bool = False) -> None:
    """Check that every bucket of a command can be reached and read, with one request per bucket.

    Local paths cost nothing. Without credentials, a public bucket is read anonymously, as Beam does.

    Args:
        paths: (flag, path) of every input and output of the command.
        beam_flags: Beam's flags of the command, some of which select the credentials.
        credentials: Whether credentials are required even for public buckets.

    Raises:
        AccessError: Credentials are missing or rejected, the network or a server does not answer, a bucket is missing
            or denies access, a package is missing, or the URL scheme is unknown.
    """
    remote = [flag_path for flag_path in paths if "://" in flag_path[1]]
    if not remote and not credentials:
        return
    google: dict[str, FlagPath] = {}
    other_paths: dict[str, FlagPath] = {}
    for flag, path in remote:
        scheme = path.partition("://")[0].lower()
        if scheme == "gs":
            match = google_access.BUCKET_PATH.fullmatch(path)
            if match is None:
                raise AccessError(f"{shown(flag, path)} is not a Cloud Storage path; give gs://BUCKET/NAME")
            # A list request checks more permissions than a read request.
            if match[1] not in google or google_access.lists(flag, path):
                google[match[1]] = (flag, path)
        else:
            _require_package(flag, path, scheme)
            other_paths.setdefault("/".join(path.split("/")[:3]), (flag, path))
    with _silenced_libraries():
        if google or credentials:
            google_access.check_google(google, beam_flags, required=credentials)
        if other_paths:
            _check_other_filesystems(list(other_paths.values()), beam_flags)


@contextlib.contextmanager
def _silenced_libraries() -> Iterator[None]:
    """Suppress the output of the libraries while the body runs; the error contains the same text."""
    # Permanently: warnings about user credentials without a quota project, and about a project that is not needed.
    warnings.filterwarnings("ignore", module=r"google\.")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        # Permanently too: threads of the libraries continue after the check.
        logger.addHandler(logging.NullHandler())
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _require_package(flag: str, path: str, scheme: str) -> None:
    if scheme == "file":
        raise AccessError(f"{shown(flag, path)}: give the path without {path.partition('://')[0]}://")
    if scheme not in _PACKAGES:
        raise AccessError(
            f"{shown(flag, path)}: the URL scheme is not supported; give a local path, or a gs://, s3://, "
            "hdfs:// or azfs:// URL"
        )
    module, extra = _PACKAGES[scheme]
    try:
        installed = importlib.util.find_spec(module) is not None
    except ImportError:
        installed = False
    if not installed:
        raise AccessError(
            f"{shown(flag, path)} requires the package {module}, which is not installed; "
            f"run pip install 'apache-beam[{extra}]'"
        )


def _check_other_filesystems(paths: list[FlagPath], beam_flags: Sequence[str]) -> None:
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # Filesystems other than Google's require options.
    FileSystems.set_options(PipelineOptions(list(beam_flags)))
    deadline = time.monotonic() + google_access.SECONDS
    for flag, path in paths:
        try:
            run_within(deadline - time.monotonic(), functools.partial(FileSystems.match, [path], limits=[1]))
        except Exception as error:
            raise AccessError(
                f"{shown(flag, path)} cannot be reached ({reason_of(error)}); check its name, the network and the "
                "credentials, or copy the files to this machine or to a gs:// bucket"
            ) from error
