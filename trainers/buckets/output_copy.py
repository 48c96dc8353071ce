"""Upload an output to a bucket while a command writes it, and start from what the bucket has.

A command may be killed at any time. Therefore the index of a checkpoint is uploaded after its data, and old checkpoints
are deleted after a new one is complete. Only objects that this command copied or uploaded are replaced or deleted.
The files of another output within this one are left to its own command.
"""

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, TypedDict

from beambert.common.local_files import write_atomic
from beambert.common.typed_json import JsonError, read
from beambert.pipelines.io.output_directory import LOCK_NAME, MODEL_MANIFEST, RUN_MANIFEST, RUNS_MANIFEST
from beambert.trainers.buckets import cache, objects
from beambert.trainers.buckets.objects import BucketObject, ChangedError
from beambert.trainers.errors import StorageError

_POLL_SECONDS = 2.0
# A file that was changed at most this long before its copy may change again within the resolution of its time.
_SAME_TIME_SECONDS = 1.0
# Files by which commands recognize a run, and by which they recognize a complete model.
_FIRST = (RUN_MANIFEST, RUNS_MANIFEST)
_LAST = ("saved_model.pb", "config.json", MODEL_MANIFEST)


class _Uploaded(NamedTuple):
    """A file that equals an object: its size and modification time, and the generation of the object."""

    size: int
    mtime_ns: int
    generation: int


class _State(TypedDict):
    files: dict[str, tuple[int, int, int]]


class OutputCopy:
    """The local copy of an output directory in a bucket.

    Args:
        url: URL of the directory.
        path: the local directory, whose parent exists.
    """

    def __init__(self, url: str, path: Path) -> None:
        self._url = url
        self._path = path
        self._state_path = cache.state_path(path)
        self._files: dict[str, _Uploaded] = {}
        # Held during an upload.
        self._lock = threading.Lock()

    def download(self, show: Callable[[str], None]) -> None:
        """Make the local directory equal to the one in the bucket; keep one that continues it.

        A command whose last upload failed left a local directory that is newer than the bucket.

        Args:
            show: called with a line to print before a copy starts.

        Raises:
            StorageError: the bucket cannot be read.
            FileError: a file cannot be written.
        """
        listed = {found.name: found for found in objects.objects_below(self._url)}
        there = {name: listed[name] for name in self._own(listed)}
        try:
            state = read(self._state_path, _State)["files"]
        except (FileNotFoundError, JsonError):
            state = {}
        self._files = {name: _Uploaded(*state[name]) for name in self._own(state)}
        uploaded = {name: file.generation for name, file in self._files.items()}
        if uploaded != {name: found.generation for name, found in there.items()}:
            self._files = {}
            self._remove_others(there)
        # Files of the last upload that are missing were removed by another program, such as a cleaner of caches.
        missing = [
            found
            for name, found in there.items()
            if not (self._path / name).is_file()
            or (name not in self._files and not cache.is_current(found, self._path / name))
        ]
        if missing:
            show(f"Copying {self._url}: {len(missing)} files, {sum(found.size for found in missing) / 1e6:,.1f} MB")
        cache.copy_objects(missing, self._path)
        for name in there.keys() - self._files.keys() | {found.name for found in missing}:
            self._files[name] = _of(self._path / name, there[name].generation)
        self._write_state()

    def upload(self) -> bool:
        """Upload the files that changed since the last upload, then delete the objects of removed files.

        Returns:
            Whether there are files.

        Raises:
            ChangedError: another process wrote to the directory in the bucket.
            StorageError: the bucket cannot be written; a later call continues.
        """
        with self._lock:
            folder = self._path.with_name(f".{self._path.name}.snapshot")
            shutil.rmtree(folder, ignore_errors=True)
            if not self._path.is_dir():
                return False
            try:
                _take_snapshot(self._path, folder)
                names = self._own([str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()])
                self._upload_files(folder, sorted(names, key=_order))
                return bool(names)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _upload_files(self, directory: Path, names: Sequence[str]) -> None:
        """Upload changed files in the given order, delete the objects of files that are not there any more."""
        self._files = {name: self._files[name] for name in self._own(self._files)}
        try:
            for name in names:
                old = self._files.get(name)
                new = _of(directory / name, old.generation if old else 0)
                if new != old:
                    written = objects.upload(directory / name, f"{self._url}/{name}", new.generation)
                    self._files[name] = new._replace(generation=written.generation)
            # A snapshot lacks files that exist, such as those of an incomplete checkpoint.
            removed = {name for name in self._files.keys() - set(names) if not (self._path / name).is_file()}
            # The index of a checkpoint first, so that an incomplete one does not look complete.
            for name in sorted(removed, key=_order, reverse=True):
                objects.delete(f"{self._url}/{name}", self._files[name].generation)
                del self._files[name]
        finally:
            self._write_state()

    def _own(self, names: Iterable[str]) -> list[str]:
        """Return the names of files that this output uploads, without those of other outputs within it.

        Another output has a list of its objects beside its local directory. A run contains no other run.
        """
        names = [name for name in names if not _is_excluded(PurePath(name))]
        directories = {parent for name in names for parent in PurePath(name).parents} - {PurePath()}
        others = {directory for directory in directories if cache.state_path(self._path / directory).is_file()}
        if RUN_MANIFEST in names:
            manifests = {RUN_MANIFEST, RUNS_MANIFEST}
            others |= {PurePath(name).parent for name in names if PurePath(name).name in manifests} - {PurePath()}
        return [name for name in names if others.isdisjoint(PurePath(name).parents)]

    def _remove_others(self, there: Mapping[str, BucketObject]) -> None:
        """Remove the local files that are not copies of objects, and the directories that become empty.

        Other outputs within this one are kept, each with its list of objects.
        """
        paths = sorted(self._path.rglob("*"), reverse=True)
        others = {path for path in paths if path.is_dir() and cache.state_path(path).is_file()}
        others |= {cache.state_path(path) for path in others}
        for path in paths:
            if not others.isdisjoint((path, *path.parents)):
                continue
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
                continue
            found = there.get(str(path.relative_to(self._path)))
            if found is None or not cache.is_current(found, path):
                path.unlink()
        if self._path.is_dir() and not any(self._path.iterdir()):
            self._path.rmdir()

    def _write_state(self) -> None:
        self._state_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._state_path, json.dumps({"files": self._files}).encode())


def _take_snapshot(directory: Path, snapshot: Path) -> None:
    """Copy a consistent state of a run directory to a new directory, while the command continues to write."""
    snapshot.mkdir(parents=True)
    # Checkpoints first, so that the other files, copied next, are at least as new.
    for index in sorted(directory.rglob("model.ckpt-*.index")):
        relative = index.relative_to(directory)
        if not _is_excluded(relative):
            _link_checkpoint(index, snapshot / relative)
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory)
        if _is_excluded(relative) or path.name.startswith("model.ckpt-") or not path.is_file():
            continue
        copy = snapshot / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        # Files may be deleted or appended to during the snapshot, so they are copied.
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, copy)
            if time.time() - copy.stat().st_mtime < _SAME_TIME_SECONDS:
                # The next upload compares this time, and uploads the file again.
                os.utime(copy, ns=(0, time.time_ns() % 10**15))


def _link_checkpoint(index: Path, link: Path) -> None:
    """Link the files of a checkpoint, which never change; link none where it is being removed.

    The index is written last and removed first: while it exists, all data files exist.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    links: list[Path] = []
    with contextlib.suppress(FileNotFoundError):
        for part in (index, *(part for part in index.parent.glob(f"{index.stem}.*") if part != index)):
            links.append(link.with_name(part.name))
            links[-1].hardlink_to(part)
        if index.samefile(link):
            return
    for path in links:
        path.unlink(missing_ok=True)


def _is_excluded(relative: PurePath) -> bool:
    """Return whether a path is not uploaded: a temporary file, a file of a temporary directory, or a lock."""
    return relative.name == LOCK_NAME or any(
        part.startswith(".") or part.endswith(".unfinished") for part in relative.parts
    )


def _of(path: Path, generation: int) -> _Uploaded:
    status = path.stat()
    return _Uploaded(status.st_size, status.st_mtime_ns, generation)


def _order(name: str) -> tuple[int, str]:
    """Return the position of a file in an upload: files that make others complete come last."""
    if name in _FIRST:
        return 0, name
    if name.endswith(".index"):
        return 2, name
    return (3 if name in _LAST else 1), name


class BackgroundUploads:
    """Upload an output whenever a checkpoint is complete, and at intervals; use as a context manager.

    Args:
        copy: the output.
        directory: its local directory.
        seconds: the interval.
        warn: called once for each different error; the next upload tries again.
    """

    def __init__(self, copy: OutputCopy, directory: Path, seconds: float, warn: Callable[[str], None]) -> None:
        self._copy = copy
        self._directory = directory
        self._seconds = seconds
        self._warn = warn
        self._stopped = threading.Event()
        self._uploaded_indexes: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="uploads", daemon=True)

    def __enter__(self) -> "BackgroundUploads":
        # Not in the thread: a checkpoint that is complete before the thread runs counts as new.
        self._uploaded_indexes = self._indexes()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the upload that is in progress."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        uploaded, last_error = time.monotonic(), ""
        while not self._stopped.wait(_POLL_SECONDS):
            now = self._indexes()
            if now == self._uploaded_indexes and time.monotonic() < uploaded + self._seconds:
                continue
            try:
                self._copy.upload()
                last_error = ""
            except ChangedError as error:
                self._warn(f"{error}; uploads end")
                return
            except (StorageError, OSError) as error:
                if str(error) != last_error:
                    self._warn(f"{error}; the next upload tries again")
                last_error = str(error)
            uploaded, self._uploaded_indexes = time.monotonic(), now

    def _indexes(self) -> set[str]:
        return {path.name for path in self._directory.rglob("model.ckpt-*.index")}
