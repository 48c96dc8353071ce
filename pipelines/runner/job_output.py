"""The output directory of a data job: where it is, whether it can be written, and whether it holds something else."""

import dataclasses
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_type_hints

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beambert_common import file_errors
from pipelines.errors import DatasetError, OutputError
from pipelines.io.atomic_files import TEMPORARY, delete_matching, read_bytes, storage_errors, write_text
from pipelines.io.output_directory import (
    LOCK_NAME,
    WORK_FILE_NAME,
    WORK_NAME,
    entries_of,
    is_lock,
    is_work_entry,
    require_own,
    visible_names,
)
from pipelines.io.versions import versions

# Directories that the workers of a data job make again where they are missing.
_MADE_AGAIN = {"corpus", "rejected", "shards", WORK_NAME}
# Beam takes these for patterns wherever it is given a path.
_PATTERN_CHARACTERS = "*?["


def absolute(path: str) -> str:
    """Return a local path as an absolute one, as worker processes may run elsewhere; a URL is unchanged."""
    return path.rstrip("/") if "://" in path else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


def require_own_output(output: str, command: str, manifests: Collection[str], writes: Collection[str]) -> None:
    """Refuse an output directory, local or in a bucket, that holds anything but what this command wrote there.

    Args:
        output: the value of --output.
        command, manifests, writes: as of `pipelines.io.output_directory.require_own`.

    Raises:
        OutputError: it holds something else, is a file, cannot be listed, or has a name that Beam reads as a pattern.
    """
    if any(character in output for character in _PATTERN_CHARACTERS):
        raise OutputError(f"--output {output} is a pattern; give a directory without the characters *, ? and [")
    require_own(f"--output {output}", entries_in(output), command, manifests, writes)


def entries_in(output: str) -> set[str]:
    """Return the names in a directory, local or in a bucket, as of `pipelines.io.output_directory.entries_of`."""
    folder = absolute(output)
    return _remote_entries(folder) if "://" in folder else entries_of(Path(folder))


def _remote_entries(folder: str) -> set[str]:
    """Return what `entries_of` returns, for a directory in a bucket."""
    with storage_errors(folder):
        paths = [metadata.path for metadata in FileSystems.match([f"{folder}/**"])[0].metadata_list]
    parts = [path.removeprefix(f"{folder}/").split("/") for path in paths]
    names = {part[0] for part in parts}
    names |= {f"{WORK_NAME}/{part[1]}" for part in parts if part[0] == WORK_NAME and len(part) > 1}
    if LOCK_NAME in names:
        with suppress(FileNotFoundError):
            names -= {LOCK_NAME} if is_lock(read_bytes(f"{folder}/{LOCK_NAME}")) else set()
    return visible_names(names)


def work_directory(output: str, content: list[Any]) -> str:
    """Return the work directory of a job: one for each input and set of options.

    Args:
        output: the output directory.
        content: everything that the work depends on, as JSON values.
    """
    name = hashlib.blake2b(json.dumps([content, versions()]).encode("utf-8"), digest_size=12).hexdigest()
    return f"{output}/{WORK_NAME}/{name}"


def begin_work(output: str, command: str) -> None:
    """Mark an output directory as begun by a data job, before anything else is written there."""
    write_text(f"{output}/{WORK_NAME}/{WORK_FILE_NAME}", json.dumps({"command": command}) + "\n")


@contextmanager
def begun_work(output: str, command: str) -> Iterator[None]:
    """Mark an output directory as begun by a data job, and mark it again after an error if the marker was removed.

    When the directory is deleted during the job, workers create it again with the next files that they write.
    Without the marker the same command would refuse these as foreign files. A file beside their directories may be
    foreign, and the output is not marked.
    """
    begin_work(output, command)
    try:
        yield
    except BaseException:
        with suppress(OSError, ValueError, BeamIOError):
            names = {name for name in entries_in(output) if "/" not in name}
            if names and names <= _MADE_AGAIN:
                begin_work(output, command)
        raise


def remedy_for(output: str) -> str:
    """Return the end of the message about a damaged manifest in the directory that a command writes to."""
    return f"restore it from a copy, or delete {output} and run the same command again"


def end_empty_work(output: str) -> None:
    """Remove the marker of `begin_work` if nothing else was written."""
    folder = absolute(output)
    if entries_in(output) <= {WORK_NAME, f"{WORK_NAME}/{WORK_FILE_NAME}"}:
        delete_work(folder)


def delete_work(output: str) -> None:
    """Delete what any job has left unfinished in an output directory, and nothing else."""
    folder = f"{output}/{WORK_NAME}"
    if "://" in output:
        with storage_errors(folder):
            paths = [metadata.path for metadata in FileSystems.match([f"{folder}/**"])[0].metadata_list]
            own = [path for path in paths if is_work_entry(path.removeprefix(f"{folder}/").split("/")[0])]
            if own:
                FileSystems.delete(own)
        return
    local = Path(folder)
    for path in list(local.iterdir()) if local.is_dir() else []:
        if is_work_entry(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with suppress(OSError):
        local.rmdir()


def delete_temporary(output: str) -> None:
    """Delete the temporary files of killed workers after a job has finished without them."""
    for folder in ("", "corpus/", "rejected/", "shards/"):
        delete_matching(f"{output}/{folder}{TEMPORARY}")


def delete_folder(folder: str) -> None:
    """Delete a folder and its content, if it exists."""
    if "://" in folder:
        delete_matching(f"{folder}/**")
    elif os.path.isdir(folder):  # noqa: PTH112
        shutil.rmtree(folder)


def require_writable(output: str) -> None:
    """Write into a directory, created if missing, so that hours of work do not fail at their first file.

    Raises:
        DatasetError: it cannot be written.
    """
    # A name of its own: another process may try the same directory at the same moment.
    probe = f"{absolute(output)}/.beambert-write-test-{uuid.uuid4().hex}"
    try:
        write_text(probe, "")
        delete_matching(probe)
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(file_errors.write_line(f"--output {output}", error)) from error


def refuse_other(output: str, what: str, recorded: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise DatasetError naming the options in which a finished result differs from the requested one."""
    names = sorted(name for name in recorded.keys() | requested.keys() if recorded.get(name) != requested.get(name))
    if names:
        differences = ", ".join(f"{name} {recorded.get(name)!r} there, {requested.get(name)!r} asked" for name in names)
        raise DatasetError(
            f"--output {output} holds another {what} ({differences}); choose another --output, or delete that directory"
        )


def with_defaults(recorded: dict[str, Any], kind: type) -> dict[str, Any]:
    """Return recorded options, completed with the default of every option that is newer than the record.

    Args:
        recorded: the options of a manifest, as JSON has them.
        kind: the dataclass of these options; options that are dataclasses themselves are completed too.
    """
    complete = dict(recorded)
    types = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        option = types[field.name]
        if isinstance(option, type) and dataclasses.is_dataclass(option) and isinstance(complete.get(field.name), dict):
            complete[field.name] = with_defaults(complete[field.name], option)
        elif field.name not in complete and field.default is not dataclasses.MISSING:
            complete[field.name] = field.default
        elif field.name not in complete and field.default_factory is not dataclasses.MISSING:
            complete[field.name] = field.default_factory()
    return complete
