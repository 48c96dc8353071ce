"""Check, before a command does anything, that the buckets it names can be reached and read.

Apache Beam and Google's libraries retry what fails for minutes, print a traceback for every attempt, and continue
without credentials where there are none. The check makes one small request for each bucket, within a few seconds.
"""

import argparse
import contextlib
import functools
import importlib.util
import logging
import os
import queue
import re
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from deploy.errors import AccessError

# Of the whole check; the command itself takes a second or two to start, and an answer is due within ten.
_SECONDS = 7.0
# To find credentials. A machine that is none of Google's may wait as long as that for Google's metadata server.
_SECONDS_FOR_CREDENTIALS = 3.5
# On a machine of Google's that server may still be starting, in a new pod of Kubernetes for example.
_SECONDS_ON_GOOGLE = 30.0
_SECONDS_TO_CONNECT = 3.0
_SECONDS_BETWEEN_ATTEMPTS = 0.5
_LONGEST_REASON = 130
_LONGEST_PATH = 80
_LOGIN = "run `gcloud auth application-default login`, or name a key file in GOOGLE_APPLICATION_CREDENTIALS"
_NETWORK = "check the network, the proxy and the firewall"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.full_control",)
_GS = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?", re.DOTALL)
_PATTERN_CHARACTERS = re.compile(r"[*?\[]")
# By scheme: the module that Beam needs, and Beam's extra that installs it.
_PACKAGES = {
    "s3": ("boto3", "aws"),
    "hdfs": ("hdfs", "hadoop"),
    "azfs": ("azure.storage.blob", "azure"),
}
_LOGGERS = ("google", "apache_beam", "urllib3", "botocore", "boto3", "azure", "hdfs")

Place = tuple[str, str]


def require_access(places: Iterable[Place], beam_flags: Sequence[str] = (), *, credentials: bool = False) -> None:
    """Check that every bucket among the places can be reached and read, with one request for each.

    Local paths cost nothing. Without credentials, a bucket that everybody may read is read as Beam reads it.

    Args:
        places: (flag, path) of what a command reads and writes.
        beam_flags: Beam's flags of the command; some say whose credentials are used.
        credentials: whether credentials are needed even where everybody may read.

    Raises:
        AccessError: no credentials, refused credentials, no network, a silent server, a bucket that does not exist or
            denies access, a package that is not installed, or a kind of path that is not known.
    """
    remote = [place for place in places if "://" in place[1]]
    if not remote and not credentials:
        return
    google: dict[str, Place] = {}
    others: dict[str, Place] = {}
    for flag, path in remote:
        scheme = path.partition("://")[0].lower()
        if scheme == "gs":
            match = _GS.fullmatch(path)
            if match is None:
                raise AccessError(f"{_shown(flag, path)} is not a path in a bucket; give gs://BUCKET/NAME")
            # A request that lists checks more than one that reads.
            if match[1] not in google or _lists(flag, path):
                google[match[1]] = (flag, path)
        else:
            _require_package(flag, path, scheme)
            others.setdefault("/".join(path.split("/")[:3]), (flag, path))
    with _silent():
        if google or credentials:
            _check_google(google, beam_flags, required=credentials)
        if others:
            _check_others(list(others.values()), beam_flags)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the libraries from printing while the body runs; what they would print is in the error."""
    # For good: of user credentials without a quota project, and of a project that nobody needs.
    warnings.filterwarnings("ignore", module=r"google\.")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        # For good too: threads of theirs go on after the check.
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
        raise AccessError(f"{_shown(flag, path)}: give the path alone, without {path.partition('://')[0]}://")
    if scheme not in _PACKAGES:
        raise AccessError(
            f"{_shown(flag, path)} is neither a path of this machine nor in a known kind of bucket (gs, s3, hdfs, "
            "azfs); give a path or gs://BUCKET/NAME"
        )
    module, extra = _PACKAGES[scheme]
    try:
        installed = importlib.util.find_spec(module) is not None
    except ImportError:
        installed = False
    if not installed:
        raise AccessError(
            f"{_shown(flag, path)} needs the package {module}, which is not installed; "
            f"pip install 'apache-beam[{extra}]'"
        )


def _lists(flag: str, path: str) -> bool:
    """Whether the command lists what lies below a path, rather than reading the object of that name."""
    return flag == "--output" or path.endswith("/") or _PATTERN_CHARACTERS.search(path) is not None


def _shown(flag: str, path: str) -> str:
    return f"{flag} {path if len(path) <= _LONGEST_PATH else f'{path[: _LONGEST_PATH - 3]}...'}"


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what `work` returns, or raise what it raises; it runs in a thread that is abandoned when time is up.

    Raises:
        TimeoutError: no result within that time.
    """
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((work(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = results.get(timeout=max(seconds, 0.01))
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return result


def _check_google(buckets: dict[str, Place], beam_flags: Sequence[str], *, required: bool) -> None:
    deadline = time.monotonic() + _SECONDS
    place = next(iter(buckets.values()), None)
    where = f"{_shown(*place)}: " if place else ""
    on_google = _is_on_google()
    try:
        credentials = within(
            _SECONDS_ON_GOOGLE if on_google else _SECONDS_FOR_CREDENTIALS, functools.partial(_credentials, beam_flags)
        )
    except TimeoutError:
        credentials = None
    except Exception as error:
        raise AccessError(f"{where}the Google credentials cannot be used ({_reason(error)}); {_LOGIN}") from error
    if credentials is None and required:
        raise AccessError(f"{where}no Google credentials were found; {_LOGIN}")
    if credentials is not None:
        if on_google:
            deadline = time.monotonic() + _SECONDS_ON_GOOGLE
        _check_token(where, credentials, deadline)
    for bucket, (flag, path) in buckets.items():
        _check_bucket(bucket, flag, path, credentials, deadline)
    if credentials is None:
        _tell_beam_that_there_are_none()


def _is_on_google() -> bool:
    """Whether this machine is one of Google's, as its firmware says."""
    from google.auth.compute_engine import _metadata

    return os.environ.get("NO_GCE_CHECK") != "true" and _metadata.detect_gce_residency_linux()


def _credentials(beam_flags: Sequence[str]) -> Any:
    """Return the credentials that Beam will find; None where there are none."""
    import google.auth
    from google.auth import impersonated_credentials
    from google.auth.exceptions import DefaultCredentialsError

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--impersonate_service_account")
    parser.add_argument("--gcp_oauth_scopes", "--gcp_oauth_scope", action="append")
    flags, _ = parser.parse_known_args(list(beam_flags))
    scopes = flags.gcp_oauth_scopes or list(_SCOPES)
    try:
        credentials, _ = google.auth.default(scopes=scopes)
    except DefaultCredentialsError as error:
        if "were not found. To set up" in str(error):
            return None
        raise
    if flags.impersonate_service_account:
        *delegates, target = flags.impersonate_service_account.split(",")
        return impersonated_credentials.Credentials(
            source_credentials=credentials, target_principal=target, delegates=delegates, target_scopes=scopes
        )
    return credentials


def _check_token(where: str, credentials: Any, deadline: float) -> None:
    """Fetch a token, which the requests that follow use."""
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.auth.transport.requests import Request

    if credentials.valid:
        return
    try:
        within(deadline - time.monotonic(), lambda: credentials.refresh(Request()))
    except (TransportError, TimeoutError) as error:
        raise AccessError(f"{where}Google's token service cannot be reached ({_reason(error)}); {_NETWORK}") from error
    except (GoogleAuthError, ValueError, OSError) as error:
        raise AccessError(f"{where}Google refuses the credentials ({_reason(error)}); {_LOGIN}") from error


def _check_bucket(bucket: str, flag: str, path: str, credentials: Any, deadline: float) -> None:
    """Make one request of the kind that the command will make. Raises AccessError."""
    from google.auth.exceptions import GoogleAuthError

    where = _shown(flag, path)
    endpoint = _endpoint(credentials)
    ask = functools.partial(_ask, endpoint, bucket, _name_in(path), credentials, lists=_lists(flag, path))
    for last in (False, True):
        try:
            status, message = within(deadline - time.monotonic(), ask)
            break
        except (GoogleAuthError, OSError, ValueError) as error:
            if not last and not isinstance(error, TimeoutError) and time.monotonic() + 2 < deadline:
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
                continue
            server = endpoint.partition("://")[2]
            without = "" if credentials else "no Google credentials were found, and "
            remedy = _NETWORK if credentials else f"{_NETWORK}, and {_LOGIN}"
            raise AccessError(f"{where}: {without}{server} cannot be reached ({_reason(error)}); {remedy}") from error
    if status in (401, 403) and credentials is None:
        raise AccessError(f"{where}: no Google credentials were found, and bucket {bucket} is not public; {_LOGIN}")
    if status in (401, 403):
        raise AccessError(
            f"{where}: access to bucket {bucket} is denied ({_cut(message)}); ask its owner for the roles in "
            "docs/SECURITY.md, or use other credentials"
        )
    # The command itself reports a missing object, and Beam repeats a request to a busy server.
    if status == 404 and "No such object" not in message:
        raise AccessError(f"{where}: bucket {bucket} does not exist; check its name")


def _endpoint(credentials: Any) -> str:
    """Return the address of Cloud Storage as Google's client finds it: an emulator's, or one of another universe."""
    from google.cloud import storage

    if credentials is None:
        return storage.Client.create_anonymous_client().api_endpoint
    # The project is of no use here, and would be looked up.
    return storage.Client(project="none", credentials=credentials).api_endpoint


def _name_in(path: str) -> str:
    match = _GS.fullmatch(path)
    return (match[2] if match else "") or ""


def _ask(endpoint: str, bucket: str, name: str, credentials: Any, *, lists: bool) -> tuple[int, str]:
    """Return status and message of a request for the metadata of an object, or for one name below a prefix."""
    import requests
    from google.auth.transport.requests import AuthorizedSession

    session = requests.Session() if credentials is None else AuthorizedSession(credentials)
    objects = f"{endpoint}/storage/v1/b/{bucket}/o"
    timeout = (_SECONDS_TO_CONNECT, _SECONDS)
    with session:
        if name and not lists:
            answer = session.get(f"{objects}/{urllib.parse.quote(name, safe='')}?fields=name", timeout=timeout)
            message = _message(answer)
            if answer.status_code != 404 or "No such object" in message:
                return answer.status_code, message
        prefix = urllib.parse.quote(_PATTERN_CHARACTERS.split(name)[0], safe="")
        answer = session.get(f"{objects}?maxResults=1&fields=items(name)&prefix={prefix}", timeout=timeout)
        return answer.status_code, _message(answer)


def _message(answer: Any) -> str:
    """Return what an answer of Google's says of an error."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return str(answer.reason)


def _tell_beam_that_there_are_none() -> None:
    """Spare Beam its own search for credentials, which takes half a minute where there are none."""
    from apache_beam.internal.gcp import auth

    with contextlib.suppress(AttributeError):
        if not auth._Credentials._credentials_init:
            auth._Credentials._credentials_init = True
            auth._Credentials._credentials = None


def _check_others(places: list[Place], beam_flags: Sequence[str]) -> None:
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # Other file systems than Google's do nothing without options.
    FileSystems.set_options(PipelineOptions(list(beam_flags)))
    deadline = time.monotonic() + _SECONDS
    for flag, path in places:
        try:
            within(deadline - time.monotonic(), functools.partial(FileSystems.match, [path], limits=[1]))
        except Exception as error:
            raise AccessError(
                f"{_shown(flag, path)} cannot be reached ({_reason(error)}); check its name, the network and the "
                "credentials, or copy the files to this machine or to a gs:// bucket"
            ) from error


def _reason(error: BaseException) -> str:
    """Return what an error is about, without the layers of libraries around it, in a few words."""
    text = getattr(error, "message", None) or str(error.args[0] if error.args else error) or type(error).__name__
    for each in _layers(error):
        if "Timeout" in type(each).__name__ and not isinstance(each, TimeoutError):
            text = "no answer in time"
        elif isinstance(each, OSError) and each.strerror:
            # The system's own words.
            text = each.strerror
        elif isinstance(getattr(each, "exception_details", None), dict):
            text = "; ".join(map(str, each.exception_details.values())) or text  # type: ignore[attr-defined]
    return _cut(str(text))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."


def _layers(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was made of, the outermost first."""
    pending: list[Any] = [error]
    seen: list[BaseException] = []
    while pending:
        each = pending.pop(0)
        if isinstance(each, BaseException) and each not in seen:
            seen.append(each)
            yield each
            pending += [*each.args, getattr(each, "reason", None), each.__cause__, each.__context__]
