"""Timeouts of access checks, and the words for their errors."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

_LONGEST_REASON = 130
_LONGEST_PATH = 80


def shown(flag: str, path: str) -> str:
    """Return a flag and its path, cut where it is long."""
    return f"{flag} {path if len(path) <= _LONGEST_PATH else f'{path[: _LONGEST_PATH - 3]}...'}"


def run_within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what `work` returns, or raise what it raises; it runs in a thread that is abandoned when time is up.

    Raises:
        TimeoutError: no result within that time.
    """
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((work(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = results.get(timeout=max(seconds, 0.01))
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return result


def reason_of(error: BaseException) -> str:
    """Return what an error is about, without the layers of libraries around it, in a few words."""
    text = getattr(error, "message", None) or str(error.args[0] if error.args else error) or type(error).__name__
    for layer in _layers(error):
        if "Timeout" in type(layer).__name__ and not isinstance(layer, TimeoutError):
            text = "no answer in time"
        elif isinstance(layer, OSError) and layer.strerror:
            # The system's own words.
            text = layer.strerror
        elif isinstance(getattr(layer, "exception_details", None), dict):
            text = "; ".join(map(str, layer.exception_details.values())) or text  # type: ignore[attr-defined]
    return cut(str(text))


def cut(text: str) -> str:
    """Return a text as one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."


def _layers(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was made of, the outermost first."""
    pending: list[Any] = [error]
    seen: list[BaseException] = []
    while pending:
        layer = pending.pop(0)
        if isinstance(layer, BaseException) and layer not in seen:
            seen.append(layer)
            yield layer
            pending += [*layer.args, getattr(layer, "reason", None), layer.__cause__, layer.__context__]
