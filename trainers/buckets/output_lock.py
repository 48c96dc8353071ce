"""Lock an output directory in a bucket with an object that its holder writes again at intervals.

The lock of a killed process, or of a machine that is gone, stops changing, and the next command replaces it.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from beambert.common.signals import ended_by_signals
from beambert.pipelines.io.output_directory import LOCK_NAME, in_use_error, is_lock, lock_content, no_lock_error
from beambert.trainers.buckets import objects
from beambert.trainers.buckets.objects import ChangedError
from beambert.trainers.errors import StorageError

# Interval of the writes, and the time without one after which a lock counts as abandoned.
HEARTBEAT_SECONDS = 10.0
ABANDONED_SECONDS = 45.0
_POLL_SECONDS = 2.0


@contextlib.contextmanager
def lock_output(label: str, url: str, show: Callable[[str], None]) -> Iterator[None]:
    """Lock a directory in a bucket while the body runs.

    Args:
        label: the flag with its value, for messages.
        url: URL of the directory.
        show: called with a line to print before waiting for an abandoned lock.

    Raises:
        OutputError: another process holds the lock, or an object of another program has its name and stays unchanged.
        StorageError: the bucket cannot be read or written.
    """
    path = f"{url}/{LOCK_NAME}"
    content = lock_content().encode()
    with ended_by_signals():
        lock = _Lock(path, content, _acquired(label, path, content, show))
        try:
            yield
        finally:
            lock.release()


class _Lock:
    def __init__(self, path: str, content: bytes, generation: int) -> None:
        self._path = path
        self._content = content
        self._generation = generation
        self._released = threading.Event()
        # Held while the generation changes.
        self._mutex = threading.Lock()
        threading.Thread(target=self._write_again, name="output lock", daemon=True).start()

    def release(self) -> None:
        """Delete the lock, unless another process has replaced it; do nothing when called again."""
        if not self._released.is_set():
            self._released.set()
            with self._mutex, contextlib.suppress(StorageError):
                objects.delete(self._path, self._generation)

    def _write_again(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            with self._mutex:
                if self._released.is_set():
                    return
                # After an error, the network may be back at the next attempt.
                with contextlib.suppress(StorageError):
                    try:
                        self._generation = objects.write(self._path, self._content, self._generation)
                    except ChangedError:
                        # Where the answer to a request was lost, the object is still this lock.
                        found = objects.object_at(self._path)
                        if found is None or objects.read(found) != self._content:
                            return
                        self._generation = found.generation


def _acquired(label: str, path: str, content: bytes, show: Callable[[str], None]) -> int:
    """Write the lock and return its generation; wait for a sign of life of another holder.

    Raises:
        OutputError, StorageError: as `lock_output`.
    """
    generation, deadline = 0, 0.0
    while True:
        try:
            return objects.write(path, content, generation)
        except ChangedError:
            found = objects.object_at(path)
        if found is None:
            generation = 0
            continue
        holder = objects.read(found)
        if holder == content:
            # The first request succeeded, but its answer was lost.
            return found.generation
        if holder is None:
            continue
        if not is_lock(holder):
            raise no_lock_error(label, path)
        if generation and found.generation != generation:
            raise in_use_error(label, holder, "wait for it, or give another path")
        if not generation:
            show(f"{path} is locked; waiting {ABANDONED_SECONDS:.0f} s for a sign of its holder")
            deadline = time.monotonic() + ABANDONED_SECONDS
        _wait_for_change(deadline, path, found.generation)
        # The next write fails where the holder wrote the lock again.
        generation = found.generation


def _wait_for_change(deadline: float, path: str, generation: int) -> None:
    """Return when a lock was written again or deleted, or at a time of the monotonic clock."""
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        found = objects.object_at(path)
        if found is None or found.generation != generation:
            return
