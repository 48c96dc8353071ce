"""Check, before a command starts, that its buckets can be reached, with one request per bucket.

Apache Beam and Google's libraries retry failed requests for minutes, and print a traceback for every attempt. This
module imports neither Beam nor TensorFlow for a bucket of Cloud Storage.
"""

import contextlib
import functools
import logging
import queue
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from beambert.common.imports import is_installed
from beambert.common.terminal import without_middle
from beambert.pipelines.errors import AccessError

# Time for each request, and for the search for credentials, which may wait for a metadata server.
_SECONDS = 5.0
# On Google Cloud the metadata server may still be starting, for example in a new Kubernetes pod.
_SECONDS_ON_GOOGLE = 30.0
_PRODUCT = Path("/sys/class/dmi/id/product_name")
_LOGIN = "run gcloud auth application-default login"
_CREDENTIALS = f"{_LOGIN}, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
_CHECK = "check its name, the network and the roles (docs/reference/cloud-permissions.md)"
_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
# By URL scheme: the module that Beam requires, and the extra of Beam that installs it.
_PACKAGES = {"s3": ("boto3", "aws"), "hdfs": ("hdfs", "hadoop"), "azfs": ("azure", "azure")}
_PATTERN = re.compile(r"[*?\[]")
# Start of the message about a rejected request.
_REQUEST = re.compile(r"^[A-Z]+ https?://\S+: ")
_LOGGERS = ("google", "apache_beam", "urllib3", "botocore", "boto3", "azure", "hdfs")
_MAX_REASON_CHARACTERS = 150
_MAX_PATH_CHARACTERS = 80


def require_access(
    paths: Iterable[tuple[str, str]], beam_flags: Sequence[str] = (), *, credentials: bool = False
) -> None:
    """Check that every bucket of a command can be reached and read.

    Local paths cost nothing. Without credentials, a public bucket is read anonymously, as Beam does.

    Args:
        paths: (flag, path) of every input and output of the command.
        beam_flags: Beam's flags of the command, some of which select the credentials.
        credentials: Whether Google credentials are required even for public buckets.

    Raises:
        AccessError: Google credentials are missing or invalid, a bucket cannot be reached or read, a package is
            missing, or the URL scheme is unknown.
    """
    buckets = {"/".join(path.split("/")[:3]): (flag, path) for flag, path in paths if "://" in path}
    # Requests of another account than the command's would fail or succeed for other reasons.
    if not buckets or any(flag.startswith("--impersonate_service_account") for flag in beam_flags):
        return
    # An error contains the text of these warnings.
    warnings.filterwarnings("ignore", module=r"google\.")
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(logging.NullHandler())
    google = {}
    for bucket, (flag, path) in buckets.items():
        label = f"{flag} {without_middle(path, _MAX_PATH_CHARACTERS)}"
        if not bucket.startswith("gs:"):
            _check_other(label, path, beam_flags)
        elif not _BUCKET.fullmatch(bucket):
            raise AccessError(f"{label} is not a Cloud Storage path; give gs://BUCKET/NAME")
        elif not is_installed("google.cloud.storage"):
            extra = "gcp" if is_installed("apache_beam") else "gcs"
            raise AccessError(f"{label} requires package google-cloud-storage; run pip install 'beambert[{extra}]'")
        else:
            google[label] = (flag, path)
    if google:
        _check_google(google, credentials)


def _check_google(paths: dict[str, tuple[str, str]], required: bool) -> None:
    """Check the Google credentials, and one path of each bucket of Cloud Storage.

    Args:
        paths: (flag, path) by their text in messages.
        required: As `credentials` of `require_access`.
    """
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    seconds = _SECONDS_ON_GOOGLE if _is_on_google() else _SECONDS
    first, identity = next(iter(paths)), None
    try:
        identity, _ = _run_within(seconds, google.auth.default)
    except TimeoutError:
        pass
    except Exception as error:
        if not isinstance(error, DefaultCredentialsError) or "were not found. To set up" not in str(error):
            raise AccessError(f"{first}: invalid Google credentials ({_reason(error)}); {_CREDENTIALS}") from error
    if identity is None and required:
        raise AccessError(f"{first}: Google credentials are missing; {_CREDENTIALS}")
    # Any project: without one, the client would look it up.
    client = storage.Client(project="none", credentials=identity or AnonymousCredentials())
    for label, (flag, path) in paths.items():
        try:
            _run_within(seconds, functools.partial(_request, client, flag, path))
        except Exception as error:
            cause = "" if identity else "Google credentials are missing, and "
            remedy = f"{_CHECK}, or {_LOGIN}" if identity else _CREDENTIALS
            raise AccessError(f"{label}: {cause}the bucket cannot be used ({_reason(error)}); {remedy}") from error
    if identity is None:
        _disable_beam_credentials()


def _is_on_google() -> bool:
    return _PRODUCT.is_file() and _PRODUCT.read_text(errors="replace").startswith("Google")


def _request(client: Any, flag: str, path: str) -> None:
    """Make the request that the command will make: of an object's metadata, or of a listing.

    The command itself reports a missing object, and Beam retries a busy server.
    """
    from google.api_core.exceptions import NotFound, ServerError, TooManyRequests

    bucket, _, name = path.removeprefix("gs://").partition("/")
    options = {"timeout": _SECONDS, "retry": None}
    with contextlib.suppress(ServerError, TooManyRequests):
        if flag != "--output" and name and not name.endswith("/") and not _PATTERN.search(name):
            with contextlib.suppress(NotFound):
                client.bucket(bucket).blob(name).reload(**options)
                return
        next(iter(client.list_blobs(bucket, prefix=_PATTERN.split(name)[0], max_results=1, **options)), None)


def _disable_beam_credentials() -> None:
    """Disable Beam's own search for credentials, which takes half a minute if it finds nothing."""
    try:
        from apache_beam.internal.gcp import auth
    except ImportError:  # A training host has no Beam.
        return
    if not auth._Credentials._credentials_init:
        auth._Credentials._credentials_init = True
        auth._Credentials._credentials = None


def _check_other(label: str, path: str, beam_flags: Sequence[str]) -> None:
    """Check a path of another filesystem of Beam."""
    scheme = path.partition("://")[0].lower()
    if scheme not in _PACKAGES:
        raise AccessError(f"{label}: unknown URL scheme; give a local path, or a gs://, s3://, hdfs:// or azfs:// URL")
    module, extra = _PACKAGES[scheme]
    if not is_installed(module):
        raise AccessError(f"{label} requires package {module}; run pip install 'apache-beam[{extra}]'")
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # These filesystems require options.
    FileSystems.set_options(PipelineOptions(list(beam_flags)))
    try:
        _run_within(_SECONDS, lambda: FileSystems.match([path], limits=[1]))
    except Exception as error:
        raise AccessError(f"{label} cannot be reached ({_reason(error)}); {_CHECK}") from error


def _run_within(seconds: float, work: Callable[[], Any]) -> Any:
    """Call `work` in a thread, which is abandoned after a timeout, and return its result or raise its exception."""
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((work(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return result


def _reason(error: BaseException) -> str:
    """Return the message of a library as one line; that of the operating system if it has caused the error."""
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    if isinstance(innermost, OSError) and innermost.strerror:
        return innermost.strerror
    text = getattr(error, "message", None) or (error.args[0] if error.args else type(error).__name__)
    return without_middle(_REQUEST.sub("", " ".join(str(text).split())), _MAX_REASON_CHARACTERS)
