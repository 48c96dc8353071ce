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
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from beambert.common import file_errors
from beambert.common.typed_json import JsonError, decode, shortened
from beambert.pipelines.errors import OutputError
from beambert.pipelines.io.output_directory import LOCK_NAME, is_lock, require_no_links

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_MAX_LOCK_BYTES = 10_000
# Attempts to lock a file that other processes create and remove at the same time.
_MAX_ATTEMPTS = 1000


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
