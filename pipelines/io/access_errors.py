"""Run access checks with a timeout, and format their errors."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

_MAX_REASON_CHARACTERS = 130
_MAX_PATH_CHARACTERS = 80


def shown(flag: str, path: str) -> str:
    """Return a flag and its path, which is shortened if it is long."""
    return f"{flag} {path if len(path) <= _MAX_PATH_CHARACTERS else f'{path[: _MAX_PATH_CHARACTERS - 3]}...'}"


def run_within(seconds: float, work: Callable[[], Any]) -> Any:
    """Call `work` in a thread and return its result, or raise its exception.

    Args:
        seconds: Timeout. The thread is abandoned after it.
        work: The function to call.

    Raises:
        TimeoutError: There is no result within the timeout.
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
    """Return the cause of an error in a few words, without the exceptions that libraries wrap around it."""
    text = getattr(error, "message", None) or str(error.args[0] if error.args else error) or type(error).__name__
    for layer in _layers(error):
        if "Timeout" in type(layer).__name__ and not isinstance(layer, TimeoutError):
            text = "no answer in time"
        elif isinstance(layer, OSError) and layer.strerror:
            # The message of the operating system.
            text = layer.strerror
        elif isinstance(getattr(layer, "exception_details", None), dict):
            text = "; ".join(map(str, layer.exception_details.values())) or text  # type: ignore[attr-defined]
    return cut(str(text))


def cut(text: str) -> str:
    """Return a text as one line, which is shortened if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_REASON_CHARACTERS else f"{line[: _MAX_REASON_CHARACTERS - 3]}..."


def _layers(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that it wraps, the outermost first."""
    pending: list[Any] = [error]
    seen: list[BaseException] = []
    while pending:
        layer = pending.pop(0)
        if isinstance(layer, BaseException) and layer not in seen:
            seen.append(layer)
            yield layer
            pending += [*layer.args, getattr(layer, "reason", None), layer.__cause__, layer.__context__]
