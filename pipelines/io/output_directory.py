"""Check and lock output directories: a command writes only to a new directory, an empty one, or one of its own.

The manifest in a directory identifies the command that wrote it; during a data job, its work directory does.

Two commands never write to the same directory at once. A lock file records its holder. On a local filesystem, the
kernel's lock on the file counts, not its existence. The kernel releases that lock when the holder ends, even if it is
killed. On a filesystem without locks, the file itself is the lock. It outlives a killed process, and must then be
removed by hand.

This module imports neither Beam nor TensorFlow.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TypedDict

from beambert.common import file_errors
from beambert.common.formatting import join_first
from beambert.common.typed_json import JsonError, decode, shorten
from beambert.pipelines.errors import OutputError

CORPUS_MANIFEST = "corpus.json"
DATASET_MANIFEST = "dataset.json"
RUN_MANIFEST = "run.json"
RUNS_MANIFEST = "runs.json"
MODEL_MANIFEST = "beambert.json"
# Work directory of an unfinished data job: completion markers per input and set of options, and a file that marks it.
WORK_NAME = "unfinished"
WORK_FILE_NAME = "started.json"
LOCK_NAME = "build.lock"

# The entries that each data job writes.
CORPUS_ENTRIES = frozenset({CORPUS_MANIFEST, "corpus", "rejected", "vocab.txt"})
DATASET_ENTRIES = frozenset({DATASET_MANIFEST, "shards", "vocab.txt", "report.html", "README.md", "croissant.json"})
# The first of these files that exists identifies the directory.
_KINDS = (
    (RUNS_MANIFEST, "several fine-tuning runs"),
    (RUN_MANIFEST, "a training run"),
    (DATASET_MANIFEST, "a dataset"),
    (CORPUS_MANIFEST, "a corpus"),
    (MODEL_MANIFEST, "a converted model"),
    ("saved_model.pb", "a SavedModel"),
    ("model.onnx", "an exported model"),
    ("model.tflite", "an exported model"),
    ("model.safetensors", "a Hugging Face model"),
    ("pytorch_model.bin", "a Hugging Face model"),
    ("bert_config.json", "a BERT checkpoint"),
)
_ENTRIES_BY_MANIFEST = {CORPUS_MANIFEST: CORPUS_ENTRIES, DATASET_MANIFEST: DATASET_ENTRIES}
# Of `lock_content`.
_LOCK_START = re.compile(rb'\{"host": "[^"\n]*", "process": \d+')
# A job's work directory, and the file that marks it or its temporary name.
_WORK_ENTRY = re.compile(rf"[0-9a-f]{{24}}|{re.escape(WORK_FILE_NAME)}(\.[0-9a-f]{{32}}\.tmp)?")
_MAX_NAMES = 4
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_MAX_LOCK_BYTES = 10_000
# Attempts to lock a file that other processes create and remove at the same time.
_MAX_ATTEMPTS = 1000
_REMEDY = "give a new or empty directory"


def is_work_entry(name: str) -> bool:
    """Return whether a data job creates an entry of this name in the directory `WORK_NAME`."""
    return _WORK_ENTRY.fullmatch(name) is not None


def entries_of(directory: Path) -> set[str]:
    """Return the names in a local directory, and those in its directory `WORK_NAME` as "unfinished/NAME".

    Hidden files, `lost+found` and the lock of a data job are excluded.

    Raises:
        OutputError: It is a file, or cannot be listed.
    """
    try:
        names = {path.name for path in directory.iterdir()}
        if WORK_NAME in names and (directory / WORK_NAME).is_dir():
            in_work = {f"{WORK_NAME}/{path.name}" for path in (directory / WORK_NAME).iterdir()}
            # A job that was killed before its first file leaves the directory empty.
            names = names | in_work if in_work else names - {WORK_NAME}
    except FileNotFoundError:
        return set()
    except NotADirectoryError as error:
        file = next(path for path in (directory, *directory.parents) if path.exists())
        problem = f"{directory} is" if file == directory else f"{directory} cannot be written: {file} is"
        raise OutputError(f"{problem} a file; choose another directory") from error
    except OSError as error:
        reason = file_errors.reason_of(error)
        raise OutputError(f"{directory} cannot be listed ({reason}); choose another directory") from error
    if LOCK_NAME in names and _is_lock(directory / LOCK_NAME):
        names.remove(LOCK_NAME)
    return visible_names(names)


def require_no_links(label: str, directory: Path) -> None:
    """Check that a local output directory contains no symbolic link, which may lead out of it; it may be one itself.

    Args:
        label: The flag with its value, for messages.
        directory: The directory; hidden files and folders are not checked.

    Raises:
        OutputError: It contains a link; the message names the first one.
    """
    for folder, folders, files in os.walk(directory):
        folders[:] = visible_names(folders)
        for path in sorted(Path(folder, name) for name in visible_names([*folders, *files])):
            if path.is_symlink():
                raise OutputError(
                    f"{label} contains the symbolic link {path.relative_to(directory)}; replace it with its target, or "
                    "give another directory"
                )


def visible_names(names: Iterable[str]) -> set[str]:
    """Return the names that are neither hidden nor `lost+found`."""
    return {name for name in names if not name.startswith(".") and name != "lost+found"}


def _is_lock(path: Path) -> bool:
    """Return whether a file is the lock of a data job: its holder, or still empty."""
    try:
        with path.open("rb") as file:
            return is_lock(file.read(_MAX_LOCK_BYTES))
    except OSError:
        return False


def is_lock(content: bytes) -> bool:
    """Return whether this is the content of a data job's lock file, even if its end is missing or corrupt."""
    return not content or _LOCK_START.match(content) is not None


def kind_of(entries: Collection[str]) -> str | None:
    """Return the kind of a directory with these entries, such as "a dataset (dataset.json)", or None."""
    for name, kind in _KINDS:
        if name in entries:
            return f"{kind} ({name})"
    if any(name.endswith(".ckpt.index") for name in entries):
        return "a BERT checkpoint"
    return None


def require_own(
    label: str, entries: Collection[str], command: str, manifests: Collection[str], writes: Collection[str] = ()
) -> None:
    """Check that an output directory contains only files that this command has written.

    A directory with the command's own manifest may contain other files that the command does not replace.

    Args:
        label: The flag with its value, for messages, such as "--output DIR".
        entries: The names in the directory, from `entries_of`.
        command: Name of the command, for messages.
        manifests: Names of the manifests that identify a directory as the command's own.
        writes: Entries that the command writes, if its manifest does not account for all of them.

    Raises:
        OutputError: The directory contains another kind of output, or files of another program.
    """
    foreign = {name for name, _ in _KINDS if name in entries and name not in manifests}
    # A training run is a model too, and has the files of one.
    if RUN_MANIFEST in manifests and RUN_MANIFEST in entries:
        foreign -= {MODEL_MANIFEST, "bert_config.json"}
    if kind := kind_of(foreign):
        raise OutputError(f"{label} contains {kind}, which beambert {command} does not write; {_REMEDY}")
    present = [name for name in manifests if name in entries]
    begun = any(name.startswith(f"{WORK_NAME}/") and is_work_entry(name.partition("/")[2]) for name in entries)
    if begun and not _ENTRIES_BY_MANIFEST.keys().isdisjoint(manifests):
        return
    if present:
        own = frozenset[str]().union(*(_ENTRIES_BY_MANIFEST.get(name, frozenset(writes)) for name in present))
        names = set(writes) & set(entries) - own
    else:
        names = {name for name in entries if "/" not in name}
    if names:
        raise OutputError(
            f"{label} contains {join_first(sorted(names))}, which beambert {command} did not write; {_REMEDY}"
        )


def lock_directory(label: str, directory: Path, choose: str) -> contextlib.AbstractContextManager[None]:
    """Lock a local directory, created if missing, while the body runs.

    The lock file is removed at the end of the body. Directories created for it are removed too if they are empty. The
    file of a process that was ended by a signal stays, and the next process replaces it.

    Args:
        label: The flag with its value, for messages, such as "--output DIR".
        directory: The directory. A file with the name of the lock that is not a lock stays unchanged.
        choose: The remedy in messages, such as "another --output".

    Raises:
        OutputError: Another process holds the lock, or the directory is not writable or contains a symbolic link.
    """
    require_no_links(label, directory)
    return _hold(label, directory / LOCK_NAME, choose)


def lock_destination(label: str, destination: Path, choose: str) -> contextlib.AbstractContextManager[None]:
    """Lock a directory that a rename creates, while the body runs, with a hidden lock file beside it.

    Args and Raises are those of `lock_directory`.
    """
    return _hold(label, destination.with_name(f".{destination.name}.lock"), choose)


@contextlib.contextmanager
def _hold(label: str, path: Path, choose: str) -> Iterator[None]:
    """Hold the lock of a file while the body runs."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        try:
            descriptor = _open_locked(label, path, choose)
        except OSError as error:
            raise OutputError(file_errors.write_line(label, error)) from error
        try:
            yield
        finally:
            # Remove before unlocking: afterwards the file may be another process's lock. It already is one if the
            # directory was moved.
            with contextlib.suppress(OSError):
                if _is_same(descriptor, path):
                    path.unlink()
            os.close(descriptor)
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _open_locked(label: str, path: Path, choose: str) -> int:
    """Create, lock and write a lock file and return its descriptor. Raise OutputError or OSError."""
    for _ in range(_MAX_ATTEMPTS):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            # Another process has removed the empty directory that it had created.
            continue
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ELOOP):
                raise no_lock_error(label, path) from error
            raise
        try:
            _lock(label, path, choose, descriptor)
            # The previous holder may have removed the file between the opening and the locking.
            if _is_same(descriptor, path):
                _write_content(descriptor, path)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise in_use_error(label, b"", f"wait for it, or choose {choose}")


def _lock(label: str, path: Path, choose: str, descriptor: int) -> None:
    """Lock an open file. Raise OutputError if another process holds it, or if it is not a lock file."""
    content = os.read(descriptor, _MAX_LOCK_BYTES)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            raise in_use_error(label, content, f"wait for it, or choose {choose}") from error
        if error.errno not in _NO_LOCKS:
            raise
        if content:
            raise in_use_error(label, content, f"if that process has ended, delete {path}") from error
    if not is_lock(content):
        raise no_lock_error(label, path)


def _write_content(descriptor: int, path: Path) -> None:
    try:
        os.ftruncate(descriptor, 0)
        content, written = lock_content().encode("utf-8"), 0
        # On a full disk, the first call writes a part, and the next one raises the error.
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], written)
    except OSError:
        path.unlink()
        raise


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def lock_content() -> str:
    """Return the content of a lock file of this process: host, process ID and start time."""
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    content = {"host": socket.gethostname(), "process": os.getpid(), "started": started}
    # In containers, all other fields may be equal.
    return json.dumps({**content, "token": uuid.uuid4().hex}) + "\n"


class _Holder(TypedDict):
    process: int
    host: str
    started: str


def in_use_error(label: str, content: bytes, remedy: str) -> OutputError:
    """Return the error for an output that another process has locked.

    Args:
        label: The flag with its value, for messages.
        content: Content of the lock file.
        remedy: The remedy in the message.
    """
    try:
        lock = decode(content, _Holder)
        holder = f"process {lock['process']} on {shorten(lock['host'])} since {shorten(lock['started'])}"
    except JsonError:
        holder = "another process"
    return OutputError(f"{label} is in use by {holder}; {remedy}")


def no_lock_error(label: str, path: Path | str) -> OutputError:
    """Return the error for an output with a file of another program in the place of the lock.

    Args:
        label: The flag with its value, for messages.
        path: Path or URL of the file.
    """
    return OutputError(
        f"{label} contains {Path(path).name}, which is not a lock of beambert; give a new directory, or, if it is a "
        f"corrupt lock, delete {path}"
    )
