"""Lock output directories, so that two commands never write to the same directory at once.

A lock file records its holder. On a local filesystem, the kernel's lock on the file counts, not its existence. The
kernel releases that lock when the holder ends, even if it is killed. On a filesystem without locks, the file itself is
the lock. It outlives a killed process, and must then be removed by hand. This module imports neither Beam nor
TensorFlow.
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

from beambert.common import file_errors
from beambert.common.signals import clean_up_all, cleanup_on_signals, end_by_signal, watched_signals
from beambert.common.typed_json import JsonError, decode, shortened
from beambert.pipelines.errors import OutputError
from beambert.pipelines.io.output_directory import LOCK_NAME, is_lock, require_no_links

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_MAX_LOCK_BYTES = 10_000
# Time to wait for a directory that other processes create and remove, and for a holder that has not yet written its
# name into the lock.
_PATIENCE_SECONDS = 1.0


@contextlib.contextmanager
def lock_directory(label: str, directory: Path, choose: str) -> Iterator[None]:
    """Lock a local directory, created if missing, while the body runs.

    The lock file is removed at the end, after an error, on Ctrl-C and on SIGTERM. Directories created for it are
    removed too if they are empty. The lock of a killed process is replaced.

    Args:
        label: The flag with its value, for messages, such as "--output DIR".
        directory: The directory. A file with the name of the lock that is not a lock stays unchanged.
        choose: The remedy in messages, such as "another --output".

    Raises:
        OutputError: Another process holds the lock, or the directory is not writable or contains a symbolic link.
    """
    require_no_links(label, directory)
    with released_on_sigterm(hold_file(label, directory / LOCK_NAME, choose)):
        yield


@contextlib.contextmanager
def lock_destination(label: str, destination: Path, choose: str) -> Iterator[None]:
    """Lock a directory that a rename creates, while the body runs, with a hidden lock file beside it.

    Args and Raises are those of `lock_directory`.
    """
    with released_on_sigterm(hold_file(label, destination.with_name(f".{destination.name}.lock"), choose)):
        yield


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
        holder = f"process {lock['process']} on {shortened(lock['host'])} since {shortened(lock['started'])}"
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


def hold_file(label: str, path: Path, choose: str) -> Callable[[], None]:
    """Lock a file, created if missing with its directory.

    Args:
        label, choose: As for `lock_directory`.
        path: The lock file.

    Returns:
        A function that removes the file, releases the lock, and removes the created directories that are empty. It
        does nothing when called again, or in a forked child.

    Raises:
        OutputError: Another process holds the lock, or the file is not writable.
    """
    created: list[Path] = []
    try:
        descriptor = _lock(label, path, choose, created)
        try:
            os.ftruncate(descriptor, 0)
            content, written = lock_content().encode("utf-8"), 0
            # On a full disk, the first call writes a part, and the next one raises the error.
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], written)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)
            raise
    except OSError as error:
        _remove_empty(created)
        raise OutputError(file_errors.write_line(label, error)) from error
    except BaseException:
        _remove_empty(created)
        raise
    owner, released = os.getpid(), False

    def release() -> None:
        nonlocal released
        if released or os.getpid() != owner:
            return
        released = True
        # Remove before unlocking: afterwards the file may be another process's lock. It already is one if the
        # directory was moved.
        with contextlib.suppress(OSError):
            if _is_same(descriptor, path):
                path.unlink()
        os.close(descriptor)
        _remove_empty(created)

    return release


@contextlib.contextmanager
def released_on_sigterm(release: Callable[[], None]) -> Iterator[None]:
    """Release a lock when the body ends, and on SIGTERM, before it ends the process.

    A command's own SIGTERM handler stays in effect.
    """
    try:
        with (
            cleanup_on_signals(release, (signal.SIGTERM,)) as handled,
            watched_signals(_end_long_call) if handled else contextlib.nullcontext(),
        ):
            yield
    finally:
        release()


def _lock(label: str, path: Path, choose: str, created: list[Path]) -> int:
    """Open and lock a file and return its descriptor, which unlocks it when closed. Raise OutputError or OSError.

    Created directories are added to `created`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            _create_directories(path.parent, created)
            descriptor, new = _open_lock_file(path)
        except FileNotFoundError:
            # Another process has removed the empty directory that it had created.
            if time.monotonic() > deadline:
                raise
            continue
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ELOOP):
                raise no_lock_error(label, path) from error
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS and new:
                return descriptor
            content = os.read(descriptor, _MAX_LOCK_BYTES)
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK and not content and time.monotonic() < deadline:
                # The lock is new, and its holder has not written its name yet.
                time.sleep(0.02)
                continue
            if error.errno in _NO_LOCKS:
                raise in_use_error(label, content, f"if that process has ended, delete {path}") from error
            if error.errno == errno.EWOULDBLOCK:
                raise in_use_error(label, content, f"wait for it, or choose {choose}") from error
            raise
        # The previous holder may have removed the file between the opening and the locking.
        if _is_same(descriptor, path):
            if is_lock(os.read(descriptor, _MAX_LOCK_BYTES)):
                return descriptor
            os.close(descriptor)
            raise no_lock_error(label, path)
        os.close(descriptor)


def _open_lock_file(path: Path) -> tuple[int, bool]:
    """Open a file for reading and writing; return the descriptor, and whether the file is new."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), False


def _create_directories(folder: Path, created: list[Path]) -> None:
    """Create a directory and its missing parents; add them to `created`, the innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            created.insert(0, path)
    # Raises if the path is a file.
    if missing and not missing[0].is_dir():
        missing[0].mkdir()


def _remove_empty(folders: list[Path]) -> None:
    """Remove directories, the innermost first, up to the first that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _end_long_call(number: int) -> None:
    """End the process on SIGTERM if its main thread is in a long C call, during which no handler runs."""
    if number == signal.SIGTERM and signal.getsignal(number) is end_by_signal:
        time.sleep(_PATIENCE_SECONDS)
        if signal.getsignal(number) is end_by_signal:
            clean_up_all()
            os._exit(128 + number)
