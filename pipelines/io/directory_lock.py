"""Locks of output directories: two commands never write into the same directory at once.

A lock file names its holder. On a local filesystem the kernel's lock on that file counts, not that the file exists: it
ends with its holder, however that ends. Where the filesystem has no locks, the file itself is the lock, and only a
person can tell whether the process that it names is dead. This file imports neither Beam nor TensorFlow.
"""

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

from beambert_common import file_errors
from beambert_common.signals import clean_up_all, cleanup_on_signals, end_by_signal, watched_signals
from beambert_common.typed_json import JsonError, decode, shortened
from pipelines.errors import OutputError
from pipelines.io.output_directory import LOCK_NAME, is_lock

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_LARGEST_LOCK = 10_000
# How long a directory that is being made and removed by others, or a holder that has not written its name yet, is
# waited for.
_PATIENCE_SECONDS = 1.0


@contextlib.contextmanager
def lock_directory(label: str, directory: Path, choose: str) -> Iterator[None]:
    """Hold a local directory, made where needed, while the body runs.

    The lock file is removed at the end, after an error, on Ctrl-C and on SIGTERM; so are directories that were made for
    it and hold nothing else. What a killed process leaves is taken over.

    Args:
        label: how the flag and its value are called in messages, such as "--output DIR".
        directory: to be held. If it holds a file with the name of the lock that is no lock, that file stays.
        choose: the remedy in messages, such as "another --output".

    Raises:
        OutputError: another process holds it, or it cannot be written.
    """
    with released_on_sigterm(hold_file(label, directory / LOCK_NAME, choose)):
        yield


@contextlib.contextmanager
def lock_destination(label: str, destination: Path, choose: str) -> Iterator[None]:
    """Hold a directory that appears complete by a rename, while the body runs, by a hidden lock file beside it.

    Args and Raises as of `lock_directory`.
    """
    with released_on_sigterm(hold_file(label, destination.with_name(f".{destination.name}.lock"), choose)):
        yield


def lock_content() -> str:
    """Return the content of a lock file of this process: who holds the lock, since when."""
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    content = {"host": socket.gethostname(), "process": os.getpid(), "started": started}
    # Containers may have all of these in common.
    return json.dumps({**content, "token": uuid.uuid4().hex}) + "\n"


class _Holder(TypedDict):
    process: int
    host: str
    started: str


def in_use_error(label: str, content: bytes, remedy: str) -> OutputError:
    """Return the error of an output that another process holds.

    Args:
        label: how the flag and its value are called.
        content: of the lock file.
        remedy: what to do.
    """
    try:
        lock = decode(content, _Holder)
        who = f"process {lock['process']} on {shortened(lock['host'])} since {shortened(lock['started'])}"
    except JsonError:
        who = "another process"
    return OutputError(f"{label} is in use by {who}; {remedy}")


def hold_file(label: str, path: Path, choose: str) -> Callable[[], None]:
    """Lock a file, made where needed with its directory.

    Args:
        label, choose: as of `lock_directory`.
        path: the lock file.

    Returns:
        A function that removes the file, releases the lock, and removes the directories that were made and are empty.
        It does nothing when called again, or in a forked child.

    Raises:
        OutputError: another process holds it, or it cannot be written.
    """
    made: list[Path] = []
    try:
        descriptor = _lock(label, path, choose, made)
        try:
            os.ftruncate(descriptor, 0)
            content, written = lock_content().encode("utf-8"), 0
            # On a full disk a part is written first, and the next call says why.
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], written)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)
            raise
    except OSError as error:
        _remove_empty(made)
        raise OutputError(file_errors.write_line(label, error)) from error
    except BaseException:
        _remove_empty(made)
        raise
    owner, released = os.getpid(), False

    def release() -> None:
        nonlocal released
        if released or os.getpid() != owner:
            return
        released = True
        # Removed first: once it is unlocked, it may be another's. It is another's already if the directory was moved.
        with contextlib.suppress(OSError):
            if _is_same(descriptor, path):
                path.unlink()
        os.close(descriptor)
        _remove_empty(made)

    return release


@contextlib.contextmanager
def released_on_sigterm(release: Callable[[], None]) -> Iterator[None]:
    """Release a lock when the body ends, and before SIGTERM, which otherwise ends the process at once.

    A command that handles SIGTERM itself continues to do so.
    """
    try:
        with (
            cleanup_on_signals(release, (signal.SIGTERM,)) as handled,
            watched_signals(_end_long_call) if handled else contextlib.nullcontext(),
        ):
            yield
    finally:
        release()


def _lock(label: str, path: Path, choose: str, made: list[Path]) -> int:
    """Open and lock a file; return its descriptor, closing which unlocks it. Raise OutputError or OSError.

    The directories that it makes are added to `made`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            _make(path.parent, made)
            descriptor, new = _opened(path)
        except FileNotFoundError:
            # Another process removed the directory that it had made for nothing.
            if time.monotonic() > deadline:
                raise
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS and new:
                return descriptor
            content = os.read(descriptor, _LARGEST_LOCK)
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK and not content and time.monotonic() < deadline:
                # It was locked this moment and is about to say by whom.
                time.sleep(0.02)
                continue
            if error.errno in _NO_LOCKS:
                raise in_use_error(label, content, f"if that one is dead, remove {path}") from error
            if error.errno == errno.EWOULDBLOCK:
                raise in_use_error(label, content, f"wait for it, or choose {choose}") from error
            raise
        # Whoever held it before may have removed the file between our opening and our locking it.
        if _is_same(descriptor, path):
            if is_lock(os.read(descriptor, _LARGEST_LOCK)):
                return descriptor
            os.close(descriptor)
            raise OutputError(f"{label} holds {path.name}, which is not a lock of beambert; give a new directory")
        os.close(descriptor)


def _opened(path: Path) -> tuple[int, bool]:
    """Open a file for reading and writing, made where it is missing; return whether it was."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666), False


def _make(folder: Path, made: list[Path]) -> None:
    """Make a directory and those above it; add the new ones to `made`, the innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            made.insert(0, path)
    # A file in its place is an error.
    if missing and not missing[0].is_dir():
        missing[0].mkdir()


def _remove_empty(folders: list[Path]) -> None:
    """Remove directories, the innermost first, up to the first that holds something."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _end_long_call(number: int) -> None:
    """End the process on SIGTERM where its main thread is in a long call, out of which no handler is called."""
    if number == signal.SIGTERM and signal.getsignal(number) is end_by_signal:
        time.sleep(_PATIENCE_SECONDS)
        if signal.getsignal(number) is end_by_signal:
            clean_up_all()
            os._exit(128 + number)
