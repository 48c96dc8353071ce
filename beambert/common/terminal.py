"""Terminal output: text without control characters, lines of bounded length, on streams that may be closed.

Text of files could change the title of a terminal, hide or reorder what it shows, or type into it. So `open_streams`
puts one filter before the terminal, for everything that this process prints. Output to a file or a pipe keeps its
bytes, because programs read it. Only `beambert.common.progress` writes control sequences: those of rich, for its own
colors and live lines.

This module imports only the standard library.
"""

import contextlib
import io
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

MAX_CHARACTERS = 400
MAX_COLUMNS = 100
# Maximum lengths of a word; the first one that makes the line short enough is used.
_WORD_LIMITS = (300, 200, 120, 80)
_ELLIPSIS = "..."
# File names in errors of the standard streams.
_LABELS = {"stdout": "<stdout>", "stderr": "<stderr>"}
# Surrogates, which represent bytes that are not UTF-8; control characters C0 and C1, which include the escape
# character; line separators; and marks that change the text direction.
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_PRINTABLE_IN_LINES = re.compile(rf"(?![\n\t]){_NOT_PRINTABLE.pattern}")

_USER_OF_URL = re.compile(r"(?<=://)[^/\s]+@")


def printable(text: str) -> str:
    """Return a text with control characters and characters that cannot be encoded escaped."""
    return _NOT_PRINTABLE.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """Return a text as `printable` does, except that line ends and tabs stay."""
    return _NOT_PRINTABLE_IN_LINES.sub(_escaped, text)


def shorten_line(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return a line of at most `limit` characters: the middle of long words is removed, then that of the line.

    An error starts with the flag and the file, and ends with the remedy.
    """
    if len(text) <= limit:
        return text
    for longest in _WORD_LIMITS:
        words = " ".join(without_middle(word, longest) for word in text.split(" "))
        if len(words) <= limit:
            return words
    return without_middle(words, limit)


def without_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, with its middle replaced by "..."."""
    if len(text) <= limit:
        return text
    kept = limit - len(_ELLIPSIS)
    return text[: kept - kept // 2] + _ELLIPSIS + text[len(text) - kept // 2 :]


def line(text: str) -> str:
    """Return a message as one printable line of bounded length, without the user names and passwords of URLs."""
    return shorten_line(_USER_OF_URL.sub("***@", printable(text.strip())))


def print_error(text: str) -> None:
    """Print a line to stderr; ignore errors of the stream."""
    try:
        print(line(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence("stderr")


def print_labeled(label: str, text: str, stream: TextIO) -> None:
    """Print a text after a label; a terminal has it wrapped between words and indented by the width of the label."""
    line = f"{label}{printable(text)}"
    if stream.isatty():
        line = wrapped(line, len(label), shutil.get_terminal_size().columns)
    print(line, file=stream, flush=True)


def print_summary_line(label: str, text: str, stream: TextIO | None = None) -> None:
    """Print a line of the summary of a command, by default to stdout: a column of labels, and the text beside it."""
    print_labeled(f"  {label:<11} ", text, stream or sys.stdout)


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings below the summary of a command."""
    for warning in warnings:
        print_summary_line("warning", warning, sys.stderr)


def wrapped(text: str, indent: int, columns: int) -> str:
    """Return a text wrapped between words, at most at 100 columns, with all lines but the first indented."""
    return textwrap.fill(
        text,
        min(columns, MAX_COLUMNS),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def unfiltered(stream: TextIO) -> TextIO:
    """Return a stream that writes control characters to the terminal of `stream`."""
    return getattr(stream, "unfiltered", stream)


class _Stream(io.TextIOWrapper):
    """stdout or stderr with the name of the stream in its errors.

    Characters that it cannot encode are escaped, and on a terminal also control characters.

    Attributes:
        unfiltered: The same stream with control characters.
    """

    def __init__(self, stream: io.TextIOWrapper, label: str, *, is_filtered: bool = True) -> None:
        super().__init__(
            stream.buffer,
            stream.encoding,
            # Python's handler in a POSIX locale is surrogateescape, which escapes bytes but not other characters.
            "backslashreplace" if stream.errors in ("strict", "surrogateescape") else stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._label = label
        self._is_filtered = is_filtered and stream.isatty()
        self.unfiltered = _Stream(stream, label, is_filtered=False) if self._is_filtered else self

    def write(self, text: str) -> int:
        with self._named():
            super().write(printable_lines(text) if self._is_filtered else text)
        return len(text)

    def flush(self) -> None:
        with self._named():
            super().flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self._label
            raise

    def close(self) -> None:
        """Flush the stream; the file stays open for the original stream, which owns it."""
        self.flush()


class _LossyStream(io.TextIOBase):
    """A stream without the write errors of another one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def open_streams() -> None:
    """Open closed standard streams, and wrap the others so that their errors contain their name.

    The next file that is opened would get the descriptor of a closed stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
        elif number and type(stream) is io.TextIOWrapper and stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, _Stream(stream, _LABELS[name]))


@contextlib.contextmanager
def lossy_stdout() -> Iterator[None]:
    """Ignore write errors of stdout during the body, for work that must be done even if its output has no reader."""
    with contextlib.redirect_stdout(_LossyStream(sys.stdout)):
        yield


def failed_stream(error: OSError) -> str:
    """Return "stdout" or "stderr" for a write error of that stream, "" for another error."""
    return next((name for name, label in _LABELS.items() if error.filename == label), "")


def silence(name: str) -> None:
    """Discard the buffered and future output of stdout or stderr."""
    try:
        descriptor = getattr(sys, name).fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def print_library_warnings() -> None:
    """Print warnings to stderr that no handler takes, as `logging` does; not those of Apache Beam.

    Without [gcp], Beam calls `logging.warning` when it is imported. That prints the warning, and where the root logger
    has no handler, it also adds one, which prints the messages of all loggers from then on.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))

    def is_printed(record: logging.LogRecord) -> bool:
        if "apache_beam" in Path(record.pathname).parts:
            return False
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(other is not handler for other in logger.handlers):
                return False
            logger = logger.parent
        return True

    handler.addFilter(is_printed)
    logging.getLogger().addHandler(handler)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0]) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    )
