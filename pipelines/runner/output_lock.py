"""Lock the output directory of a data job, local or in an object store.

A local directory is locked as by every command (`beambert.pipelines.io.directory_lock`). In an object store, the lock
file in the output is the lock. It outlives a killed process, and must then be removed by hand.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beambert.common.signals import ended_by_signals
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.atomic_files import delete_files, read_bytes, storage_errors, write_text
from beambert.pipelines.io.directory_lock import in_use_error, lock_content, lock_directory
from beambert.pipelines.io.output_directory import LOCK_NAME
from beambert.pipelines.runner.job_output import absolute, end_empty_work, require_own_output

_REMEDY = "if that process has ended, delete {}"


@contextmanager
def claim_output(output: str, command: str, manifests: Collection[str], writes: Collection[str]) -> Iterator[None]:
    """Lock an output directory while the body runs; reject one with files that the command has not written.

    Args:
        output: The value of --output.
        command, manifests, writes: As for `beambert.pipelines.io.output_directory.require_own`.

    Raises:
        OutputError: It contains other files, or another process has locked it. Its content is unchanged.
        DatasetError, OutputError: It is not writable.
    """
    # Checked before the lock file is written, and again under the lock, when no other process writes.
    require_own_output(output, command, manifests, writes)
    with lock_output(output):
        require_own_output(output, command, manifests, writes)
        try:
            yield
        except BaseException:
            # An invalid flag must leave no files.
            with suppress(OSError, ValueError):
                end_empty_work(output)
            raise


@contextmanager
def lock_output(output: str) -> Iterator[None]:
    """Lock an output directory, created if missing, while the body runs.

    The lock file is removed at the end of the body, and in an object store on SIGTERM too. If the process is killed,
    the next job replaces a local lock.

    Raises:
        OutputError: Another process holds the lock, or a local directory contains a symbolic link.
        DatasetError, OutputError: The directory is not writable.
    """
    folder = absolute(output)
    if "://" not in folder:
        with lock_directory(f"--output {output}", Path(folder), "another --output"):
            yield
        return
    lock = _lock_generation if folder.startswith("gs://") else _lock_object
    with ended_by_signals():
        release = lock(output, f"{folder}/{LOCK_NAME}")
        try:
            yield
        finally:
            release()


def _lock_generation(output: str, path: str) -> Callable[[], None]:
    """Lock an output in Cloud Storage and return the function that releases it.

    A generation precondition lets exactly one of several concurrent requests create the lock object.

    Raises:
        OutputError: Another process holds the lock.
        DatasetError: The output is not writable.
    """
    from apache_beam.io.gcp.gcsio import parse_gcs_path
    from google.api_core.exceptions import NotFound, PreconditionFailed

    own_content = lock_content().encode("utf-8")
    content = own_content
    # Beam's own client, so that options and credentials are the same as for all other requests.
    client = FileSystems.get_filesystem(path)._gcsIO().client
    bucket, name = parse_gcs_path(path)
    lock = client.bucket(bucket).blob(name)
    with _write_errors(output), storage_errors(path):
        try:
            lock.upload_from_string(own_content, content_type="application/json", if_generation_match=0)
        except PreconditionFailed:
            content = b""
            # The holder may release the lock between these requests.
            with suppress(NotFound):
                content = lock.download_as_bytes()
                lock.reload()
    # Equal if the first request succeeded, but its response was lost and the client library repeated it.
    if content != own_content:
        raise in_use_error(f"--output {output}", content, _REMEDY.format(path))
    generation = lock.generation

    def release() -> None:
        # If a user removed this lock and another process took it, that lock must stay.
        with storage_errors(path), suppress(NotFound, PreconditionFailed):
            client.bucket(bucket).blob(name).delete(if_generation_match=generation)

    return release


def _lock_object(output: str, path: str) -> Callable[[], None]:
    """Lock an output in another object store and return the function that releases it.

    Of two processes that start at the same time, the last writer gets the lock.
    """
    own_content, content = lock_content().encode("utf-8"), b""
    with suppress(FileNotFoundError):
        content = read_bytes(path)
    if not content:
        with _write_errors(output):
            write_text(path, own_content.decode())
        content = read_bytes(path)
    if content != own_content:
        raise in_use_error(f"--output {output}", content, _REMEDY.format(path))
    return lambda: delete_files([path])


@contextmanager
def _write_errors(output: str) -> Iterator[None]:
    """Raise errors of a filesystem as DatasetError."""
    try:
        yield
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error
