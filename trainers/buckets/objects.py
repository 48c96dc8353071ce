"""Read and write objects of Cloud Storage, with checksums and generation preconditions.

Uploads above 8 MiB are resumable. Google's client retries requests that fail for a moment.
"""

import base64
import contextlib
import functools
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from beambert.common import file_errors
from beambert.trainers.errors import StorageError

SCHEME = "gs://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SECONDS = 60.0
_CHUNK = 1 << 20
_MAX_REASON = 200
_CREDENTIALS_REMEDY = "check the network and the permissions in docs/reference/cloud-permissions.md"


class BucketObject(NamedTuple):
    """An object as a listing describes it.

    Attributes:
        name: name after the prefix of the listing.
        url: gs://BUCKET/NAME.
        size: bytes.
        generation: number that changes whenever the object is written.
        crc32c: checksum of the content, in Base64.
    """

    name: str
    url: str
    size: int
    generation: int
    crc32c: str


class ChangedError(StorageError):
    """Raised if an object was written or deleted by another process in the meantime."""


def split_url(url: str) -> tuple[str, str]:
    """Return bucket and object name of a URL.

    Raises:
        StorageError: the URL has no bucket or object name, or a part that is not a file name, such as "..".
    """
    bucket, _, name = url.removeprefix(SCHEME).partition("/")
    name = name.rstrip("/")
    # The bucket is a directory in the cache, as are the parts of the name.
    if not url.startswith(SCHEME) or not _BUCKET.fullmatch(bucket) or not name:
        raise StorageError(f"{ascii(url)[1:-1]} is not a path in a bucket; give gs://BUCKET/NAME")
    if not _is_relative(name) or re.search(r"[\x00-\x1f]", name):
        raise StorageError(f"{ascii(url)[1:-1]} has a part that is not a file name, such as .. or //; rename it")
    return bucket, name


def objects_below(url: str) -> list[BucketObject]:
    """Return the objects below a directory, by name; their names are relative to it. Folder markers are left out.

    Raises:
        StorageError: the bucket cannot be read, or an object has a name that is not a relative path.
    """
    return _listed(url, f"{split_url(url)[1]}/")


def objects_starting_with(url: str) -> list[BucketObject]:
    """Return the objects of a directory whose names start with the last part of a URL, such as those of a checkpoint.

    Raises:
        StorageError: as of `objects_below`.
    """
    return _listed(url.rpartition("/")[0], url.removeprefix(SCHEME).partition("/")[2], delimiter="/")


def object_at(url: str) -> BucketObject | None:
    """Return the object of a URL, or None.

    Raises:
        StorageError: it cannot be read.
    """
    from google.api_core.exceptions import NotFound

    blob = _blob(url)
    try:
        with _errors(url, "read", NotFound):
            blob.reload(timeout=_SECONDS)
    except NotFound:
        return None
    return _described(blob, url.rpartition("/")[2], url)


def download(found: BucketObject, path: Path) -> None:
    """Write the generation of an object that a listing found to a file, atomically, and check its CRC32C.

    Raises:
        ChangedError: the object was replaced or deleted.
        StorageError: it cannot be read, or its content has another checksum.
        FileError: the file cannot be written.
    """
    import google_crc32c
    from google.api_core.exceptions import NotFound, PreconditionFailed

    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:16]}.unfinished")
    try:
        with file_errors.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("xb") as file:
                try:
                    with _errors(found.url, "read", NotFound, PreconditionFailed):
                        _blob(found.url).download_to_file(
                            file, if_generation_match=found.generation, timeout=_SECONDS, checksum="crc32c"
                        )
                except (NotFound, PreconditionFailed) as error:
                    raise ChangedError(
                        f"{found.url} was replaced or deleted while it was read; run the command again"
                    ) from error
            if found.crc32c and _crc32c(unfinished, google_crc32c) != found.crc32c:
                raise StorageError(f"{found.url} was read with another CRC32C than it has; run the command again")
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def upload(path: Path, url: str, generation: int) -> BucketObject:
    """Write a file to an object, and have the server check its CRC32C.

    Args:
        path: the file; it does not change.
        url: URL of the object.
        generation: the generation that it replaces; 0 if there must be no object.

    Returns:
        The object. One that already has the same content is left as it is.

    Raises:
        ChangedError: there is an object of another generation with other content.
        StorageError: the object cannot be written.
    """
    import google_crc32c
    from google.api_core.exceptions import PreconditionFailed

    name = url.rpartition("/")[2]
    blob = _blob(url)
    try:
        with _errors(url, "written", PreconditionFailed):
            blob.upload_from_filename(
                str(path),
                content_type="application/octet-stream",
                if_generation_match=generation,
                timeout=_SECONDS,
                checksum="crc32c",
            )
    except PreconditionFailed as error:
        # Also where the answer to a successful request was lost, and the client repeated it.
        there = object_at(url)
        if there is None or there.crc32c != _crc32c(path, google_crc32c):
            raise ChangedError(f"{url} was written by another process; give another path") from error
        return there
    return _described(blob, name, url)


def write(url: str, content: bytes, generation: int) -> int:
    """Write a small object that replaces a generation, 0 for none, and return its generation.

    Raises:
        ChangedError: there is an object of another generation.
        StorageError: the object cannot be written.
    """
    from google.api_core.exceptions import PreconditionFailed

    blob = _blob(url)
    try:
        with _errors(url, "written", PreconditionFailed):
            blob.upload_from_string(content, if_generation_match=generation, timeout=_SECONDS)
    except PreconditionFailed as error:
        raise ChangedError(f"{url} was written by another process") from error
    return int(blob.generation)


def read(found: BucketObject) -> bytes | None:
    """Return the content of a small object; None where it was replaced or deleted.

    Raises:
        StorageError: it cannot be read.
    """
    from google.api_core.exceptions import NotFound, PreconditionFailed

    with contextlib.suppress(NotFound, PreconditionFailed), _errors(found.url, "read", NotFound, PreconditionFailed):
        return _blob(found.url).download_as_bytes(if_generation_match=found.generation, timeout=_SECONDS)
    return None


def delete(url: str, generation: int) -> None:
    """Delete a generation of an object; do nothing where there is another one, or none.

    Raises:
        StorageError: it cannot be deleted.
    """
    from google.api_core.exceptions import NotFound, PreconditionFailed

    with contextlib.suppress(NotFound, PreconditionFailed), _errors(url, "deleted", NotFound, PreconditionFailed):
        _blob(url).delete(if_generation_match=generation, timeout=_SECONDS)


def _listed(directory: str, prefix: str, delimiter: str | None = None) -> list[BucketObject]:
    """Return the objects of a bucket whose names have a prefix, with names relative to the URL of a directory.

    With a delimiter, those that have it after the prefix are left out.
    """
    bucket, _, folder = directory.removeprefix(SCHEME).partition("/")
    start = f"{folder}/" if folder else ""
    found = []
    with _errors(directory, "read"):
        for blob in _client().list_blobs(bucket, prefix=prefix, delimiter=delimiter, timeout=_SECONDS):
            name = blob.name.removeprefix(start)
            if blob.name.endswith("/"):
                continue
            if not _is_relative(name):
                raise StorageError(
                    f"{SCHEME}{bucket}/{ascii(blob.name)[1:-1]} has a part that is not a file name, such as .. or //; "
                    "rename it"
                )
            found.append(_described(blob, name, f"{SCHEME}{bucket}/{blob.name}"))
    return sorted(found)


def _is_relative(name: str) -> bool:
    return not any(part in ("", ".", "..") or "\0" in part for part in name.split("/"))


def _described(blob: Any, name: str, url: str) -> BucketObject:
    return BucketObject(name, url, int(blob.size or 0), int(blob.generation), str(blob.crc32c or ""))


def _blob(url: str) -> Any:
    bucket, name = split_url(url)
    return _client().bucket(bucket).blob(name)


@functools.cache
def _client() -> Any:
    """Return the client, anonymous where the environment has no credentials."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.read_write"])
    except DefaultCredentialsError:
        return storage.Client.create_anonymous_client()
    # Requests to buckets need no project; without one, the client would look it up.
    return storage.Client(project="none", credentials=credentials)


@contextlib.contextmanager
def _errors(url: str, verb: str, *others: type[Exception]) -> Iterator[None]:
    """Raise errors of Google's library, except `others`, as StorageError."""
    try:
        yield
    except others:
        raise
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package not in ("google", "requests", "urllib3"):
            raise
        reason = " ".join(str(getattr(error, "message", "") or error).split())[:_MAX_REASON]
        raise StorageError(f"{url} cannot be {verb} ({reason}); {_CREDENTIALS_REMEDY}") from error


def _crc32c(path: Path, library: Any) -> str:
    """Return the CRC32C of a file in Base64, as Cloud Storage states it."""
    checksum = library.Checksum()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return base64.b64encode(checksum.digest()).decode()
