"""Run a command that trains or uses a model with paths in buckets: copy its inputs, upload its output.

The command reads and writes local files: the shards of a dataset are copied when they are read, and the output of a run
is uploaded while it trains.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beambert.common.command_line.command import Command
from beambert.common.command_line.path_flags import PathType
from beambert.trainers.backends.startup import choose_backend
from beambert.trainers.buckets import cache, input_copies, objects
from beambert.trainers.buckets.output_copy import BackgroundUploads, OutputCopy
from beambert.trainers.buckets.output_lock import lock_output
from beambert.trainers.commands.tune import TuneOptions
from beambert.trainers.errors import StorageError
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.options import RunOptions
from beambert.trainers.training.run_files import is_chief

_UPLOAD_SECONDS = 60.0


def run(command: Command) -> int:
    """Copy the inputs, run the command, upload its output; return the exit code.

    Raises:
        StorageError: a path in a bucket cannot be read or written.
        OutputError: another process writes the output.
        Exception: as of the command.
    """
    output = next(((flag, path, kind) for flag, path, kind in command.paths if kind.output and _is_url(path)), None)
    inputs = dict.fromkeys(path for _, path, kind in command.paths if not kind.output and _is_url(path))
    local_inputs = {url: str(input_copies.fetch(url, print_status)) for url in inputs}

    def local_path(path: str, kind: PathType) -> str:
        if not _is_url(path):
            return path
        return str(cache.output_path(path)) if kind.output else local_inputs[path]

    config = command.configured_with(local_path)
    if output is None:
        return int(command.module.run(config))
    flag, url, kind = output
    url = url.rstrip("/")
    path = cache.output_path(url)
    if kind.output == "file":
        with _uploaded_file(url, path):
            return int(command.module.run(config))
    if not _writes(config):
        # Only the first of several processes writes files.
        return int(command.module.run(config))
    with lock_output(f"{flag} {url}", url, print_status), _uploaded_directory(url, path):
        code = int(command.module.run(config))
    if not isinstance(config, RunOptions | TuneOptions):
        # A run may be continued on this machine; what `convert` and `export` wrote is in the bucket.
        shutil.rmtree(path, ignore_errors=True)
    return code


def _is_url(path: str) -> bool:
    return path.startswith(objects.SCHEME)


def _writes(config: Any) -> bool:
    """Return whether this process writes the output of a command.

    Raises:
        StorageError: TensorFlow trains on several machines, which need a shared disk.
    """
    if not isinstance(config, RunOptions):
        return True
    config = dataclasses.replace(config, backend=choose_backend(config.backend))
    if config.backend == "tensorflow" and config.strategy in ("auto", "multi_worker") and "TF_CONFIG" in os.environ:
        raise StorageError("TF_CONFIG with --output in a bucket is not supported; give a directory on a shared disk")
    return is_chief(config)


@contextlib.contextmanager
def _uploaded_file(url: str, path: Path) -> Iterator[None]:
    """Copy an existing object, which the command then refuses or replaces; upload the file that the body writes."""
    found = objects.object_at(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    if found is None:
        path.unlink(missing_ok=True)
    elif not cache.is_current(found, path):
        cache.copy_object(found, path)
    yield
    if path.is_file() and not (found and cache.is_current(found, path)):
        objects.upload(path, url, found.generation if found else 0)
        path.unlink()


@contextlib.contextmanager
def _uploaded_directory(url: str, path: Path) -> Iterator[None]:
    """Copy an existing output to the local directory; upload it while the body writes it, and at the end.

    Raises:
        StorageError: the last upload failed; the same command continues from the local directory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = OutputCopy(url, path)
    copy.download(print_status)
    try:
        with BackgroundUploads(copy, path, _UPLOAD_SECONDS, warn):
            yield
    except BaseException:
        # The error of the command is the one to report.
        try:
            copy.upload()
        except StorageError as error:
            warn(str(error))
        raise
    if copy.upload():
        print_status(f"Uploaded  {url}")
