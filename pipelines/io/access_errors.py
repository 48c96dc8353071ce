"""How a check of access waits for an answer, and how it words what went wrong."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

_LONGEST_REASON = 130
_LONGEST_PATH = 80


def shown(flag: str, path: str) -> str:
    """Return a flag and its path, cut where it is long."""
    return f"{flag} {path if len(path) <= _LONGEST_PATH else f'{path[: _LONGEST_PATH - 3]}...'}"


def within(seconds: float, work: Callable[[], Any]) -> Any:
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
    for each in _layers(error):
        if "Timeout" in type(each).__name__ and not isinstance(each, TimeoutError):
            text = "no answer in time"
        elif isinstance(each, OSError) and each.strerror:
            # The system's own words.
            text = each.strerror
        elif isinstance(getattr(each, "exception_details", None), dict):
            text = "; ".join(map(str, each.exception_details.values())) or text  # type: ignore[attr-defined]
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
        each = pending.pop(0)
        if isinstance(each, BaseException) and each not in seen:
            seen.append(each)
            yield each
            pending += [*each.args, getattr(each, "reason", None), each.__cause__, each.__context__]
