"""Check, before a command does anything, that the buckets it names can be reached and read.

Apache Beam and Google's libraries retry what fails for minutes, print a traceback for every attempt, and continue
without credentials where there are none. The check makes one small request for each bucket, within a few seconds.
"""

import contextlib
import functools
import importlib.util
import logging
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence

from pipelines.errors import AccessError
from pipelines.io import google_access
from pipelines.io.access_errors import reason_of, run_within, shown
from pipelines.io.google_access import Place

# By scheme: the module that Beam needs, and Beam's extra that installs it.
_PACKAGES = {
    "s3": ("boto3", "aws"),
    "hdfs": ("hdfs", "hadoop"),
    "azfs": ("azure.storage.blob", "azure"),
}
_LOGGERS = ("google", "apache_beam", "urllib3", "botocore", "boto3", "azure", "hdfs")


def require_access(places: Iterable[Place], beam_flags: Sequence[str] = (), *, credentials: bool = False) -> None:
    """Check that every bucket among the places can be reached and read, with one request for each.

    Local paths cost nothing. Without credentials, a bucket that everybody may read is read as Beam reads it.

    Args:
        places: (flag, path) of what a command reads and writes.
        beam_flags: Beam's flags of the command; some say whose credentials are used.
        credentials: whether credentials are needed even where everybody may read.

    Raises:
        AccessError: missing or refused credentials, no network, a server that does not answer, a missing bucket or one
            that denies access, a missing package, or an unknown kind of path.
    """
    remote = [place for place in places if "://" in place[1]]
    if not remote and not credentials:
        return
    google: dict[str, Place] = {}
    other_places: dict[str, Place] = {}
    for flag, path in remote:
        scheme = path.partition("://")[0].lower()
        if scheme == "gs":
            match = google_access.BUCKET_PATH.fullmatch(path)
            if match is None:
                raise AccessError(f"{shown(flag, path)} is not a path in a bucket; give gs://BUCKET/NAME")
            # A request that lists checks more than one that reads.
            if match[1] not in google or google_access.lists(flag, path):
                google[match[1]] = (flag, path)
        else:
            _require_package(flag, path, scheme)
            other_places.setdefault("/".join(path.split("/")[:3]), (flag, path))
    with _silenced_libraries():
        if google or credentials:
            google_access.check_google(google, beam_flags, required=credentials)
        if other_places:
            _check_other_filesystems(list(other_places.values()), beam_flags)


@contextlib.contextmanager
def _silenced_libraries() -> Iterator[None]:
    """Keep the libraries from printing while the body runs; what they would print is in the error."""
    # For good: of user credentials without a quota project, and of a project that is not needed.
    warnings.filterwarnings("ignore", module=r"google\.")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        # For good too: threads of theirs continue after the check.
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
        raise AccessError(f"{shown(flag, path)}: give the path alone, without {path.partition('://')[0]}://")
    if scheme not in _PACKAGES:
        raise AccessError(
            f"{shown(flag, path)} is neither a path of this machine nor in a known kind of bucket (gs, s3, hdfs, "
            "azfs); give a path or gs://BUCKET/NAME"
        )
    module, extra = _PACKAGES[scheme]
    try:
        installed = importlib.util.find_spec(module) is not None
    except ImportError:
        installed = False
    if not installed:
        raise AccessError(
            f"{shown(flag, path)} needs the package {module}, which is not installed; "
            f"pip install 'apache-beam[{extra}]'"
        )


def _check_other_filesystems(places: list[Place], beam_flags: Sequence[str]) -> None:
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # Other file systems than Google's do nothing without options.
    FileSystems.set_options(PipelineOptions(list(beam_flags)))
    deadline = time.monotonic() + google_access.SECONDS
    for flag, path in places:
        try:
            run_within(deadline - time.monotonic(), functools.partial(FileSystems.match, [path], limits=[1]))
        except Exception as error:
            raise AccessError(
                f"{shown(flag, path)} cannot be reached ({reason_of(error)}); check its name, the network and the "
                "credentials, or copy the files to this machine or to a gs:// bucket"
            ) from error
