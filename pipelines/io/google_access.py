"""Check Google credentials, and that Cloud Storage buckets can be reached and read.

It makes one small request per bucket.
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

from beambert.pipelines.errors import AccessError
from beambert.pipelines.io.access_errors import cut, reason_of, run_within, shown

# Time for the whole check. With the start of the command, the user gets an error within ten seconds.
SECONDS = 7.0
# Time to find credentials. On a machine outside Google Cloud, waiting for the metadata server may take all of it.
_SECONDS_FOR_CREDENTIALS = 3.5
# On Google Cloud the metadata server may still be starting, for example in a new Kubernetes pod.
_SECONDS_ON_GOOGLE = 30.0
_SECONDS_TO_CONNECT = 3.0
_SECONDS_BETWEEN_ATTEMPTS = 0.5
_LOGIN = "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
_NETWORK = "check the network, the proxy and the firewall"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.full_control",)
BUCKET_PATH = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?", re.DOTALL)
_PATTERN_CHARACTERS = re.compile(r"[*?\[]")

# (flag, path) of an input or output.
FlagPath = tuple[str, str]


def lists(flag: str, path: str) -> bool:
    """Return whether the command lists the objects below a path, rather than reading one object."""
    return flag == "--output" or path.endswith("/") or _PATTERN_CHARACTERS.search(path) is not None


def check_google(buckets: dict[str, FlagPath], beam_flags: Sequence[str], *, required: bool) -> None:
    """Check the credentials and every bucket, with one request per bucket.

    Args:
        buckets: (flag, path) of one path in each bucket, by the name of the bucket.
        beam_flags: Beam's flags of the command, some of which select the credentials.
        required: Whether credentials are required even for public buckets.

    Raises:
        AccessError: Credentials are missing or rejected, the network or a server does not answer, or a bucket is
            missing or denies access.
    """
    deadline = time.monotonic() + SECONDS
    flag_path = next(iter(buckets.values()), None)
    where = f"{shown(*flag_path)}: " if flag_path else ""
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
        raise AccessError(f"{where}Google credentials are missing; {_LOGIN}")
    if credentials is not None:
        if on_google:
            deadline = time.monotonic() + _SECONDS_ON_GOOGLE
        _check_token(where, credentials, deadline)
    for bucket, (flag, path) in buckets.items():
        _check_bucket(bucket, flag, path, credentials, deadline)
    if credentials is None:
        _disable_beam_credentials()


def _is_on_google() -> bool:
    """Return whether this machine runs on Google Cloud, by its firmware."""
    from google.auth.compute_engine import _metadata

    return os.environ.get("NO_GCE_CHECK") != "true" and _metadata.detect_gce_residency_linux()


def _credentials(beam_flags: Sequence[str]) -> Any:
    """Return the credentials that Beam will find, or None."""
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
    """Fetch an access token, which later requests use."""
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
        raise AccessError(f"{where}Google rejects the credentials ({reason_of(error)}); {_LOGIN}") from error


def _check_bucket(bucket: str, flag: str, path: str, credentials: Any, deadline: float) -> None:
    """Make one request of the kind that the command will make. Raise AccessError if it fails."""
    from google.auth.exceptions import GoogleAuthError

    where = shown(flag, path)
    endpoint = _endpoint(credentials)
    send_request = functools.partial(
        _request_status, endpoint, bucket, _name_in(path), credentials, lists=lists(flag, path)
    )
    for last in (False, True):
        try:
            status, message = run_within(deadline - time.monotonic(), send_request)
            break
        except (GoogleAuthError, OSError, ValueError) as error:
            if not last and not isinstance(error, TimeoutError) and time.monotonic() + 2 < deadline:
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
                continue
            server = endpoint.partition("://")[2]
            without = "" if credentials else "Google credentials are missing, and "
            remedy = _NETWORK if credentials else f"{_NETWORK}, and {_LOGIN}"
            raise AccessError(f"{where}: {without}{server} cannot be reached ({reason_of(error)}); {remedy}") from error
    if status in (401, 403) and credentials is None:
        raise AccessError(f"{where}: Google credentials are missing, and bucket {bucket} is not public; {_LOGIN}")
    if status in (401, 403):
        raise AccessError(
            f"{where}: access to bucket {bucket} is denied ({cut(message)}); request the roles in "
            "docs/reference/cloud-permissions.md from its owner, or use other credentials"
        )
    # The command itself reports a missing object, and Beam retries a busy server.
    if status == 404 and "No such object" not in message:
        raise AccessError(f"{where}: bucket {bucket} does not exist; check its name")


def _endpoint(credentials: Any) -> str:
    """Return the endpoint of Cloud Storage, which may be an emulator or of another universe domain."""
    from google.cloud import storage

    if credentials is None:
        return storage.Client.create_anonymous_client().api_endpoint
    # Any project: without one, the client would look it up.
    return storage.Client(project="none", credentials=credentials).api_endpoint


def _name_in(path: str) -> str:
    match = BUCKET_PATH.fullmatch(path)
    return (match[2] if match else "") or ""


def _request_status(endpoint: str, bucket: str, name: str, credentials: Any, *, lists: bool) -> tuple[int, str]:
    """Return status and message of a request for an object's metadata, or for a listing of one name."""
    import requests
    from google.auth.transport.requests import AuthorizedSession

    session = requests.Session() if credentials is None else AuthorizedSession(credentials)
    objects = f"{endpoint}/storage/v1/b/{bucket}/o"
    timeout = (_SECONDS_TO_CONNECT, SECONDS)
    with session:
        if name and not lists:
            response = session.get(f"{objects}/{urllib.parse.quote(name, safe='')}?fields=name", timeout=timeout)
            message = _message(response)
            if response.status_code != 404 or "No such object" in message:
                return response.status_code, message
        prefix = urllib.parse.quote(_PATTERN_CHARACTERS.split(name)[0], safe="")
        response = session.get(f"{objects}?maxResults=1&fields=items(name)&prefix={prefix}", timeout=timeout)
        return response.status_code, _message(response)


def _message(response: Any) -> str:
    """Return the error message of a response."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return str(response.reason)


def _disable_beam_credentials() -> None:
    """Disable Beam's own search for credentials, which takes half a minute if it finds nothing."""
    # A training host has no Beam.
    with contextlib.suppress(AttributeError, ImportError):
        from apache_beam.internal.gcp import auth

        if not auth._Credentials._credentials_init:
            auth._Credentials._credentials_init = True
            auth._Credentials._credentials = None
