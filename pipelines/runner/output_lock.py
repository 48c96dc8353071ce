"""Keeps two builds out of the same output directory.

A local directory is held as by every command (`pipelines.io.directory_lock`). On object stores a lock file in the
output is the lock itself, and only a person can tell whether the process that it names is dead.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from pipelines.errors import DatasetError
from pipelines.io.atomic_files import delete_matching, read_bytes, storage_errors, write_text
from pipelines.io.directory_lock import hold_file, in_use_error, lock_content, released_on_sigterm
from pipelines.io.output_directory import LOCK_NAME
from pipelines.runner.job_output import absolute, end_empty_work, require_own_output

FILE_NAME = LOCK_NAME
# A lock that vanishes whenever it is looked at is taken and released by others.
_TRIES = 10


@contextmanager
def claim_output(output: str, command: str, manifests: Collection[str], writes: Collection[str]) -> Iterator[None]:
    """Hold an output directory while the body runs; refuse one that holds anything but what the command wrote there.

    Args:
        output: the value of --output.
        command, manifests, writes: as of `pipelines.io.output_directory.require_own`.

    Raises:
        OutputError: it holds something else, or another build holds it; nothing in it was touched.
        DatasetError, OutputError: it cannot be written.
    """
    # Checked before the lock file is written, and again while holding the lock, when no other process writes.
    require_own_output(output, command, manifests, writes)
    with lock_output(output):
        require_own_output(output, command, manifests, writes)
        try:
            yield
        except BaseException:
            # A mistake in the flags leaves nothing.
            with suppress(OSError, ValueError):
                end_empty_work(output)
            raise


@contextmanager
def lock_output(output: str) -> Iterator[None]:
    """Lock an output directory, created if missing, while the body runs.

    The lock file is removed at the end, after an error, on Ctrl-C and on SIGTERM. After a harder end, the next build
    takes a local one over.

    Raises:
        OutputError: another build holds the lock.
        DatasetError, OutputError: it cannot be written.
    """
    folder = absolute(output)
    if folder.startswith("gs://"):
        release = _hold_generation(output, f"{folder}/{FILE_NAME}")
    elif "://" in folder:
        release = _hold_object(output, f"{folder}/{FILE_NAME}")
    else:
        release = hold_file(f"--output {output}", Path(folder) / FILE_NAME, "another --output")
    with released_on_sigterm(release):
        yield


def _hold_generation(output: str, path: str) -> Callable[[], None]:
    """Hold an output in Cloud Storage: of all that create the object at the same moment, the service lets one succeed.

    Raises:
        OutputError: another build holds the lock.
        DatasetError: it cannot be written.
    """
    from apache_beam.io.gcp.gcsio import parse_gcs_path
    from google.api_core.exceptions import NotFound, PreconditionFailed

    own_content = lock_content().encode("utf-8")
    remedy = f"if that one is dead, remove {path}"
    # With the options and credentials of all that is read and written there.
    client = FileSystems.get_filesystem(path)._gcsIO().client
    bucket, name = parse_gcs_path(path)
    for _ in range(_TRIES):
        lock = client.bucket(bucket).blob(name)
        try:
            with storage_errors(path):
                try:
                    lock.upload_from_string(own_content, content_type="application/json", if_generation_match=0)
                    generation = lock.generation
                    break
                except PreconditionFailed:
                    content = b""
                    # Its holder may release it between these requests.
                    with suppress(NotFound, PreconditionFailed):
                        blob = client.bucket(bucket).get_blob(name)
                        if blob is not None:
                            content = blob.download_as_bytes(if_generation_match=blob.generation)
        except (OSError, ValueError, BeamIOError) as error:
            raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error
        if content == own_content:
            # The request had succeeded, its answer was lost, and the client library asked again.
            generation = blob.generation
            break
        if content:
            raise in_use_error(f"--output {output}", content, remedy)
    else:
        raise in_use_error(f"--output {output}", b"", remedy)
    released = threading.Event()

    def release() -> None:
        if not released.is_set():
            released.set()
            # Another's lock, taken after a person removed this one, stays.
            with storage_errors(path), suppress(NotFound, PreconditionFailed):
                client.bucket(bucket).blob(name).delete(if_generation_match=generation)

    return release


def _hold_object(output: str, path: str) -> Callable[[], None]:
    """Hold an output in another object store; two that begin at the same moment are told apart by who wrote last."""
    own_content = lock_content()
    remedy = f"if that one is dead, remove {path}"
    with suppress(FileNotFoundError):
        raise in_use_error(f"--output {output}", read_bytes(path), remedy)
    try:
        write_text(path, own_content)
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error
    content = read_bytes(path)
    if content != own_content.encode("utf-8"):
        # Another wrote at the same moment, after us.
        raise in_use_error(f"--output {output}", content, remedy)
    released = threading.Event()

    def release() -> None:
        if not released.is_set():
            released.set()
            delete_matching(path)

    return release
