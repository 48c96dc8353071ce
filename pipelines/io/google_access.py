"""Check that Google's credentials can be used and that buckets of Cloud Storage can be reached and read.

One small request is made for each bucket, as `cloud_access.py` asks for.
"""

import argparse
import contextlib
import functools
import os
import re
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

from pipelines.errors import AccessError
from pipelines.io.access_errors import cut, reason_of, run_within, shown

# Of the whole check; the command itself takes a second or two to start, and an answer is due within ten.
SECONDS = 7.0
# To find credentials. A machine that is none of Google's may wait as long as that for Google's metadata server.
_SECONDS_FOR_CREDENTIALS = 3.5
# On a machine of Google's that server may still be starting, in a new pod of Kubernetes for example.
_SECONDS_ON_GOOGLE = 30.0
_SECONDS_TO_CONNECT = 3.0
_SECONDS_BETWEEN_ATTEMPTS = 0.5
_LOGIN = "run `gcloud auth application-default login`, or name a key file in GOOGLE_APPLICATION_CREDENTIALS"
_NETWORK = "check the network, the proxy and the firewall"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.full_control",)
BUCKET_PATH = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?", re.DOTALL)
_PATTERN_CHARACTERS = re.compile(r"[*?\[]")

# A flag and its path.
Place = tuple[str, str]


def lists(flag: str, path: str) -> bool:
    """Return whether the command lists what is below a path, rather than reading the object of that name."""
    return flag == "--output" or path.endswith("/") or _PATTERN_CHARACTERS.search(path) is not None


def check_google(buckets: dict[str, Place], beam_flags: Sequence[str], *, required: bool) -> None:
    """Check the credentials and every bucket, with one request for each.

    Args:
        buckets: a place in each, by the name of the bucket.
        beam_flags: Beam's flags of the command; some say whose credentials are used.
        required: whether credentials are needed even where everybody may read.

    Raises:
        AccessError: missing or refused credentials, no network, a server that does not answer, a missing bucket or
            one that denies access.
    """
    deadline = time.monotonic() + SECONDS
    place = next(iter(buckets.values()), None)
    where = f"{shown(*place)}: " if place else ""
    on_google = _is_on_google()
    try:
        credentials = run_within(
            _SECONDS_ON_GOOGLE if on_google else _SECONDS_FOR_CREDENTIALS, functools.partial(_credentials, beam_flags)
        )
    except TimeoutError:
        credentials = None
    except Exception as error:
        raise AccessError(f"{where}the Google credentials cannot be used ({reason_of(error)}); {_LOGIN}") from error
    if credentials is None and required:
        raise AccessError(f"{where}no Google credentials were found; {_LOGIN}")
    if credentials is not None:
        if on_google:
            deadline = time.monotonic() + _SECONDS_ON_GOOGLE
        _check_token(where, credentials, deadline)
    for bucket, (flag, path) in buckets.items():
        _check_bucket(bucket, flag, path, credentials, deadline)
    if credentials is None:
        _disable_beam_credentials()


def _is_on_google() -> bool:
    """Return whether this machine is one of Google's, by its firmware."""
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
        run_within(deadline - time.monotonic(), lambda: credentials.refresh(Request()))
    except (TransportError, TimeoutError) as error:
        raise AccessError(
            f"{where}Google's token service cannot be reached ({reason_of(error)}); {_NETWORK}"
        ) from error
    except (GoogleAuthError, ValueError, OSError) as error:
        raise AccessError(f"{where}Google refuses the credentials ({reason_of(error)}); {_LOGIN}") from error


def _check_bucket(bucket: str, flag: str, path: str, credentials: Any, deadline: float) -> None:
    """Make one request of the kind that the command will make. Raises AccessError."""
    from google.auth.exceptions import GoogleAuthError

    where = shown(flag, path)
    endpoint = _endpoint(credentials)
    ask = functools.partial(_request_status, endpoint, bucket, _name_in(path), credentials, lists=lists(flag, path))
    for last in (False, True):
        try:
            status, message = run_within(deadline - time.monotonic(), ask)
            break
        except (GoogleAuthError, OSError, ValueError) as error:
            if not last and not isinstance(error, TimeoutError) and time.monotonic() + 2 < deadline:
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
                continue
            server = endpoint.partition("://")[2]
            without = "" if credentials else "no Google credentials were found, and "
            remedy = _NETWORK if credentials else f"{_NETWORK}, and {_LOGIN}"
            raise AccessError(f"{where}: {without}{server} cannot be reached ({reason_of(error)}); {remedy}") from error
    if status in (401, 403) and credentials is None:
        raise AccessError(f"{where}: no Google credentials were found, and bucket {bucket} is not public; {_LOGIN}")
    if status in (401, 403):
        raise AccessError(
            f"{where}: access to bucket {bucket} is denied ({cut(message)}); ask its owner for the roles in "
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
    match = BUCKET_PATH.fullmatch(path)
    return (match[2] if match else "") or ""


def _request_status(endpoint: str, bucket: str, name: str, credentials: Any, *, lists: bool) -> tuple[int, str]:
    """Return status and message of a request for the metadata of an object, or for one name below a prefix."""
    import requests
    from google.auth.transport.requests import AuthorizedSession

    session = requests.Session() if credentials is None else AuthorizedSession(credentials)
    objects = f"{endpoint}/storage/v1/b/{bucket}/o"
    timeout = (_SECONDS_TO_CONNECT, SECONDS)
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
    """Return the error message in Google's answer."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return str(answer.reason)


def _disable_beam_credentials() -> None:
    """Spare Beam its own search for credentials, which takes half a minute where there are none."""
    from apache_beam.internal.gcp import auth

    with contextlib.suppress(AttributeError):
        if not auth._Credentials._credentials_init:
            auth._Credentials._credentials_init = True
            auth._Credentials._credentials = None
