"""Keeps two builds out of the same output directory.

A file in the output names who builds there. On a local filesystem the kernel's lock on that file counts, not its being
there: it goes when its holder dies, however that happens. On object stores, and where the filesystem has no locks, the
file itself is the lock, and only a person can tell whether the one it names is dead.
"""

import errno
import fcntl
import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypedDict

from apache_beam.io.filesystem import BeamIOError

from beambert_json import JsonError, decode, shortened
from deploy.output import absolute, end_empty_work, require_own_output
from pipelines.dataset import DatasetError
from pipelines.output_directory import LOCK_NAME
from pipelines.writing import delete_matching, read_bytes, write_text

FILE_NAME = LOCK_NAME
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def claim_output(output: str, command: str, manifests: Collection[str], writes: Collection[str]) -> Iterator[None]:
    """Hold an output directory while the body runs; refuse one that holds anything but what the command wrote there.

    Args:
        output: the value of --output.
        command, manifests, writes: as of `pipelines.output_directory.require_own`.

    Raises:
        OutputError: it holds something else; nothing in it was touched.
        DatasetError: another build holds it, or it cannot be written.
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
    """Holds an output directory, made where needed, while the body runs.

    The file goes at the end, after an error, on Ctrl-C and on SIGTERM. After anything that leaves no time for that, a
    local one is taken over by the next build.

    Raises:
        DatasetError: another build holds it, or it cannot be written.
    """
    folder = absolute(output)
    release = _hold_object(output, f"{folder}/{FILE_NAME}") if "://" in folder else _hold_file(output, Path(folder))
    with _released_on_sigterm(release):
        try:
            yield
        finally:
            release()


def _holder() -> str:
    """What the file says: who holds the directory, since when."""
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    holder = {"host": socket.gethostname(), "process": os.getpid(), "started": started}
    # Containers may have all of these in common.
    return json.dumps({**holder, "token": uuid.uuid4().hex}) + "\n"


class _Holder(TypedDict):
    process: int
    host: str
    started: str


def _held(output: str, content: bytes, remedy: str) -> DatasetError:
    try:
        holder = decode(content, _Holder)
        who = f"process {holder['process']} on {shortened(holder['host'])} since {shortened(holder['started'])}"
    except JsonError:
        who = "another build"
    return DatasetError(f"--output {output} is in use by {who}; {remedy}")


def _hold_file(output: str, folder: Path) -> Callable[[], None]:
    made = not folder.exists()
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(output, path)
    except OSError as error:
        raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error
    file = os.fdopen(descriptor, "r+b", buffering=0)
    file.truncate(0)
    file.write(_holder().encode("utf-8"))

    def release() -> None:
        if not file.closed:
            # Removed first: once it is unlocked, it may be another's.
            path.unlink(missing_ok=True)
            file.close()
            if made:
                # A mistake in the flags leaves nothing.
                with suppress(OSError):
                    folder.rmdir()

    return release


def _lock(output: str, path: Path) -> int:
    """Opens and locks a file; returns its descriptor, closing which unlocks it. Raises DatasetError or OSError."""
    deadline = time.monotonic() + 1.0
    while True:
        try:
            descriptor, new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), True
        except FileExistsError:
            descriptor, new = os.open(path, os.O_RDWR | os.O_CREAT), False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS and new:
                return descriptor
            content = os.read(descriptor, 10_000)
            os.close(descriptor)
            if error.errno == errno.EWOULDBLOCK and not content and time.monotonic() < deadline:
                # It was locked this moment and is about to say by whom.
                time.sleep(0.02)
                continue
            if error.errno in _NO_LOCKS:
                raise _held(output, content, f"if that one is dead, remove {path}") from error
            if error.errno == errno.EWOULDBLOCK:
                raise _held(output, content, "wait for it, or choose another --output") from error
            raise
        # Whoever held it before may have removed the file between our opening and our locking it.
        if _is_same(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _hold_object(output: str, path: str) -> Callable[[], None]:
    ours = _holder()
    remedy = f"if that one is dead, remove {path}"
    with suppress(FileNotFoundError):
        raise _held(output, read_bytes(path), remedy)
    try:
        write_text(path, ours)
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error
    content = read_bytes(path)
    if content != ours.encode("utf-8"):
        # Another wrote at the same moment, after us.
        raise _held(output, content, remedy)
    released = threading.Event()

    def release() -> None:
        if not released.is_set():
            released.set()
            delete_matching(path)

    return release


@contextmanager
def _released_on_sigterm(release: Callable[[], None]) -> Iterator[None]:
    """Makes SIGTERM, which otherwise ends the process at once, take the lock away first."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        release()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
