"""Read batches ahead of use and copy them to the devices, in a background thread."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from beambert.trainers.data.pipeline import Batches

# Number of batches to read ahead of use.
_READ_AHEAD = 4
_POLL_SECONDS = 0.1


class Prefetch:
    """Iterate over batches that a background thread reads and copies to the devices.

    Args:
        batches: the batches.
        to_devices: function from the features of a batch in host memory to arrays on the devices.
    """

    def __init__(self, batches: Batches, to_devices: Callable[[dict[str, np.ndarray]], Any]) -> None:
        self._batches = batches
        self._to_devices = to_devices
        self._queue: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_READ_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch on the devices; raise the error of the reader where it occurred."""
        batch, error = self._queue.get()
        if error is not None:
            self._put(None, error)  # Every later call raises it again.
            raise error
        return batch

    def __enter__(self) -> Self:
        """Return the iterator, which the end of the context closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the iterator."""
        self.close()

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._thread.join()

    def _read(self) -> None:
        try:
            for features in self._batches:
                if not self._put(self._to_devices(features), None):
                    return
            self._put(None, StopIteration())
        except BaseException as error:
            self._put(None, error)

    def _put(self, batch: Any, error: BaseException | None) -> bool:
        """Put an element into the queue; return False if the iterator was closed before there was space."""
        while not self._closed.is_set():
            try:
                self._queue.put((batch, error), timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
