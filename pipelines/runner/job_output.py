"""Lock, check, mark and clean up the output directory of a data job, local or in an object store.

A local directory is locked as by every command (`beambert.pipelines.io.output_directory`). In an object store, the lock
file in the output is the lock. It outlives a killed process, and must then be removed by hand.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beambert.common import file_errors
from beambert.common.signals import ended_by_signals
from beambert.common.terminal import without_middle
from beambert.pipelines.errors import DatasetError, OutputError
from beambert.pipelines.io.atomic_files import (
    TEMPORARY,
    delete_files,
    delete_matching,
    list_files,
    read_bytes,
    storage_errors,
    write_text,
)
from beambert.pipelines.io.output_directory import (
    LOCK_NAME,
    WORK_FILE_NAME,
    WORK_NAME,
    entries_of,
    in_use_error,
    is_lock,
    is_work_entry,
    lock_content,
    lock_directory,
    require_own,
    visible_names,
)
from beambert.pipelines.io.versions import versions

# Directories that the workers of a data job create if they are missing.
_CREATED_BY_WORKERS = {"corpus", "rejected", "shards", WORK_NAME}
_MAX_SHOWN_CHARACTERS = 100
# A value with one of these is probably a mistake, and Beam treats such a remote path as a glob pattern.
_PATTERN_CHARACTERS = "*?["
_LOCK_REMEDY = "if that process has ended, delete {}"


def absolute(path: str) -> str:
    """Return a local path as an absolute one, because workers may run in another directory; keep a URL."""
    return path.rstrip("/") if "://" in path else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


def require_own_output(output: str, command: str, manifests: Collection[str], writes: Collection[str]) -> None:
    """Check that an output directory, local or remote, contains only files of an earlier run of this command.

    Args:
        output: The value of --output.
        command, manifests, writes: As for `beambert.pipelines.io.output_directory.require_own`.

    Raises:
        OutputError: It contains other files, is a file, cannot be listed, or its name is a glob pattern to Beam.
    """
    if any(character in output for character in _PATTERN_CHARACTERS):
        raise OutputError(
            f"invalid --output {output}: a glob pattern; give a directory without the characters *, ? and ["
        )
    require_own(f"--output {output}", entries_in(output), command, manifests, writes)


def entries_in(output: str) -> set[str]:
    """Return the names in a directory, local or remote, as `beambert.pipelines.io.output_directory.entries_of` does."""
    folder = absolute(output)
    return _remote_entries(folder) if "://" in folder else entries_of(Path(folder))


def _remote_entries(folder: str) -> set[str]:
    """Return the names in a remote directory, as `entries_of` does."""
    parts = [path.removeprefix(f"{folder}/").split("/") for path in _remote_files(folder)]
    names = {part[0] for part in parts}
    names |= {f"{WORK_NAME}/{part[1]}" for part in parts if part[0] == WORK_NAME and len(part) > 1}
    if LOCK_NAME in names:
        with suppress(FileNotFoundError):
            names -= {LOCK_NAME} if is_lock(read_bytes(f"{folder}/{LOCK_NAME}")) else set()
    return visible_names(names)


def _remote_files(folder: str) -> list[str]:
    """Return the paths of all files in and below a remote directory."""
    return [metadata.path for metadata in list_files(f"{folder}/**")]


def work_directory(output: str, content: list[Any], file_format: str = "tfrecord") -> str:
    """Return the work directory of a job, which differs for every input and set of options.

    Args:
        output: The output directory.
        content: Everything that the result depends on, as JSON values.
        file_format: Format of the shards, or "corpus", whose packages the result depends on too.
    """
    name = hashlib.blake2b(json.dumps([content, versions(file_format)]).encode("utf-8"), digest_size=12).hexdigest()
    return f"{output}/{WORK_NAME}/{name}"


def resume(output: str, work: str, results: Sequence[str]) -> int:
    """Return the number of completion markers of a stopped job; without one, delete what other jobs have left.

    Args:
        output: The output directory.
        work: The work directory of the job, or "" for a job that cannot resume.
        results: Glob patterns, relative to `output`, of the files that the job writes. Those of a killed job are of
            other options or inputs, and a trainer's glob would match them.
    """
    finished = len(list_files(f"{work}/*.json")) if work else 0
    if not finished:
        for pattern in results:
            delete_matching(f"{output}/{pattern}")
        delete_work(output)
    return finished


def begin_work(output: str, command: str) -> None:
    """Mark an output directory as begun by a data job, before any other file is written."""
    write_text(f"{output}/{WORK_NAME}/{WORK_FILE_NAME}", json.dumps({"command": command}) + "\n")


@contextmanager
def begun_work(output: str, command: str) -> Iterator[None]:
    """Mark an output directory as begun by a data job; delete its work and temporary files after a success.

    After an error, mark it again if the marker was removed.
    If the directory is deleted during the job, workers create it again with the next files that they write. Without
    the marker, the next run would reject these as foreign files. If other entries exist, they may be foreign, and the
    directory is not marked.
    """
    begin_work(output, command)
    try:
        yield
    except BaseException:
        with suppress(OSError, ValueError, BeamIOError):
            names = {name for name in entries_in(output) if "/" not in name}
            if names and names <= _CREATED_BY_WORKERS:
                begin_work(output, command)
        raise
    # Killed workers leave temporary files.
    for folder in ("", "corpus/", "rejected/", "shards/"):
        delete_matching(f"{output}/{folder}{TEMPORARY}")
    delete_work(output)


def remedy_for(output: str) -> str:
    """Return the remedy in the message about a corrupt manifest in the output directory of a command."""
    return f"restore it from a copy, or delete {output} and run the same command again"


def end_empty_work(output: str) -> None:
    """Remove the marker of `begin_work` if nothing else was written."""
    folder = absolute(output)
    if entries_in(output) <= {WORK_NAME, f"{WORK_NAME}/{WORK_FILE_NAME}"}:
        delete_work(folder)


def delete_finished_work(output: str, command: str) -> None:
    """Delete the work of a command that was interrupted after its last file; keep that of another command."""
    with suppress(FileNotFoundError, ValueError):
        if json.loads(read_bytes(f"{output}/{WORK_NAME}/{WORK_FILE_NAME}")) == {"command": command}:
            delete_work(output)


def delete_work(output: str) -> None:
    """Delete the work directories of unfinished jobs in an output directory, and nothing else; the marker last."""
    folder = f"{output}/{WORK_NAME}"
    if "://" in output:
        paths = _remote_files(folder)
        delete_files([path for path in paths if is_work_entry(path.removeprefix(f"{folder}/").split("/")[0])])
        return
    local = Path(folder)
    for path in sorted(local.iterdir(), key=lambda path: path.name == WORK_FILE_NAME) if local.is_dir() else []:
        if is_work_entry(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with suppress(OSError):
        local.rmdir()


def delete_folder(folder: str) -> None:
    """Delete a directory and its content, if it exists."""
    if "://" in folder:
        delete_matching(f"{folder}/**")
    elif os.path.isdir(folder):  # noqa: PTH112
        shutil.rmtree(folder)


def require_writable(output: str) -> None:
    """Check that a directory, created if missing, is writable, so that a long job does not fail at its first file.

    Raises:
        DatasetError: It is not writable.
    """
    # A unique name: another process may test the same directory at the same time.
    probe = f"{absolute(output)}/.beambert-write-test-{uuid.uuid4().hex}"
    try:
        write_text(probe, "")
        delete_matching(probe)
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(file_errors.write_line(f"--output {output}", error)) from error


def require_same_options(output: str, kind: str, recorded: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise DatasetError, with the names of the options, if an existing result has other options than requested."""
    differences = ", ".join(_differences(recorded, requested))
    if differences:
        raise DatasetError(
            f"--output {output} contains a {kind} with other options ({differences}); choose another --output, or "
            "delete that directory"
        )


def _differences(recorded: dict[str, Any], requested: dict[str, Any], group: str = "") -> list[str]:
    """Return a phrase for each option that differs; `group` is the prefix of nested options, such as "read."."""
    phrases = []
    for name in sorted(recorded.keys() | requested.keys()):
        before, now = recorded.get(name), requested.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            phrases += _differences(before, now, f"{group}{name}.")
        elif before != now:
            # The abbreviations of a user may be many.
            old, new = (without_middle(repr(value), _MAX_SHOWN_CHARACTERS) for value in (before, now))
            phrases.append(f"{group}{name}: {old} recorded, {new} requested")
    return phrases


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
        raise in_use_error(f"--output {output}", content, _LOCK_REMEDY.format(path))
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
        raise in_use_error(f"--output {output}", content, _LOCK_REMEDY.format(path))
    return lambda: delete_files([path])


@contextmanager
def _write_errors(output: str) -> Iterator[None]:
    """Raise errors of a filesystem as DatasetError."""
    try:
        yield
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error
