"""Format file system errors as one line: file, reason and remedy.

Python, Beam, TensorFlow, safetensors and pyarrow report a full disk in different ways: by error number, by name, or in
a sentence. This module extracts the error number, replaces temporary names by final ones, and adds a remedy. It imports
only the standard library.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

AGAIN = "run the same command again"
_SPACE = f"free some space and {AGAIN}"
_WRITABLE = "choose a directory that can be written, or change its permissions"
_READABLE = "change its permissions, or give another file"


class _Kind(NamedTuple):
    """The reason and the remedies of an error number.

    Attributes:
        words: reason.
        to_write: remedy after a write error; "" where writing cannot raise the error.
        to_read: remedy after a read error; "" where reading cannot raise the error.
    """

    words: str
    to_write: str
    to_read: str


_KINDS = {
    errno.ENOSPC: _Kind("no space left on device", _SPACE, ""),
    errno.EDQUOT: _Kind("disk quota exceeded", _SPACE, ""),
    errno.EFBIG: _Kind("file too large", f"raise the limit on the size of a file (ulimit -f) and {AGAIN}", ""),
    errno.EROFS: _Kind("read-only file system", _WRITABLE, ""),
    errno.EACCES: _Kind("permission denied", _WRITABLE, _READABLE),
    errno.EPERM: _Kind("operation not permitted", _WRITABLE, _READABLE),
    errno.EIO: _Kind("input/output error", f"check the disk or the mount and {AGAIN}", f"check the disk and {AGAIN}"),
    errno.ESTALE: _Kind("stale file handle", f"mount its file system again and {AGAIN}", f"mount it again and {AGAIN}"),
    errno.EMFILE: _Kind("too many open files", *2 * (f"raise the limit on open files (ulimit -n) and {AGAIN}",)),
    errno.ENFILE: _Kind("too many open files in system", *2 * (f"end other programs and {AGAIN}",)),
    errno.ENAMETOOLONG: _Kind("file name too long", *2 * ("give a shorter path",)),
    errno.ELOOP: _Kind("too many levels of symbolic links", *2 * ("give a path without a loop of links",)),
    errno.ENOTDIR: _Kind("a part of the path is a file", *2 * ("check the path",)),
    errno.EISDIR: _Kind("it is a directory", *2 * ("give a file",)),
    errno.EEXIST: _Kind("a file of this name is in the way", *2 * ("remove it, or give another path",)),
    errno.ENOTEMPTY: _Kind("directory not empty", *2 * ("give a new or empty directory",)),
    errno.EBUSY: _Kind("device or resource busy", *2 * (f"end the program that uses it and {AGAIN}",)),
    errno.ETXTBSY: _Kind("text file busy", *2 * (f"end the program that uses it and {AGAIN}",)),
    errno.ENXIO: _Kind("no such device or address", *2 * ("give another file",)),
    errno.ENODEV: _Kind("no such device", *2 * ("give another file",)),
    errno.EBADF: _Kind("bad file descriptor", *2 * (f"{AGAIN} with the stream open",)),
    errno.ENOMEM: _Kind("cannot allocate memory", *2 * (f"free some memory and {AGAIN}",)),
}
_MISSING = f"check the path, and if it was removed while the command ran, {AGAIN}"

# Formats of the number in messages of Python, Rust (safetensors), Arrow and HDF5.
_NUMBER = re.compile(r"\[errno (\d{1,4})\]|\(os error (\d{1,4})\)|\berrno = (\d{1,4})", re.IGNORECASE)
_NUMBERS_BY_WORDS = {
    os.strerror(number).lower(): number for number in (*_KINDS, errno.ENOENT) if number not in (errno.ENOMEM,)
}
# Text of an OSError of Python or Arrow; the reason ends at the file name or the surrounding sentence.
_PYTHON_TEXT = re.compile(
    r"\[errno (?P<number>\d{1,4})\] (?:[\w-]++(?:[ /][\w-]++)*+)?"
    r"(?:: (?P<quote>['\"])(?P<path>(?:(?!(?P=quote))[^\\\n]|\\.)*+)(?P=quote))?"
    r"(?: -> (?:'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\"))?",
    re.IGNORECASE,
)
_WORDS = re.compile("|".join(map(re.escape, sorted(_NUMBERS_BY_WORDS, key=len, reverse=True))), re.IGNORECASE)
# A path in a library's message: quoted, or an absolute path that ends before a colon or semicolon.
_QUOTED_PATH = re.compile(r"'((?:[^'\\\n]|\\.)*+)'")
_BARE_PATH = re.compile(r"(?:^|[\s(])(/[^\n;:]++)[;:]")

# Temporary names of files and directories of beambert.
_TEMPORARY = re.compile(
    r"\.(.+?)(?:\.[0-9a-f]{8,32})?\.unfinished(?:\.assets)?|(.+?)\.[0-9a-f]{32}\.tmp|(.+?)\.[0-9a-f]{8,32}\.unfinished"
)
# Temporary directory of a checkpoint, and suffixes that TensorFlow adds to the name of a checkpoint.
_TEMPORARY_FOLDER = ".unfinished"
_TENSORFLOW_NAME = re.compile(r"(?:_temp|(?:\.data-\d{5}-of-\d{5})?\.tempstate\d+|\.index\.tempstate\d+)$")


class FileError(OSError):
    """A file system error whose text is one line: file, reason and remedy.

    Attributes:
        errno: error number.
        strerror: reason.
        filename: final name of the file.
    """

    def __init__(self, number: int, words: str, filename: str, text: str) -> None:
        super().__init__(number, words, filename)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[type["FileError"], tuple[int | None, str | None, str, str]]:
        """Return the state for pickling, with which worker processes send the error."""
        return type(self), (self.errno, self.strerror, self.filename, self._text)


def errno_of(error: BaseException) -> int | None:
    """Return the file system error number of an exception; None for another exception.

    Args:
        error: an exception of Python, or of a library, whose text is searched.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    return errno_in(str(error))


def errno_in(text: str) -> int | None:
    """Return the file system error number in a message; None otherwise."""
    match = _NUMBER.search(text)
    if match:
        return int(next(filter(None, match.groups())))
    match = _WORDS.search(text)
    return _NUMBERS_BY_WORDS[match[0].lower()] if match else None


def cannot_write(number: int | None) -> bool:
    """Return whether an error number means that a file cannot be written."""
    return number in (errno.EACCES, errno.EPERM) or (number in _KINDS and not _KINDS[number].to_read)


def reason_of(error: BaseException | int) -> str:
    """Return the reason of an error, such as "no space left on device", without number and file.

    Args:
        error: an exception, or an error number.
    """
    number = error if isinstance(error, int) else errno_of(error)
    if number in _KINDS:
        return _KINDS[number].words
    if number == errno.ENOENT:
        return "no such file or directory"
    if number is not None and isinstance(error, int | OSError):
        return os.strerror(number).lower()
    line = without_numbers((str(error).strip().splitlines() or [type(error).__name__])[0])
    # TensorFlow adds its operation and device before and after the reason.
    return re.sub(r"^\{\{.{0,300}?\}\} ?| \[Op:\w+\]$", "", line)


def without_numbers(text: str) -> str:
    """Return a message with texts such as "[Errno 13] Permission denied: 'FILE'" replaced by the reason.

    The file name is kept unless the rest of the message contains it.
    """

    def words(match: re.Match[str]) -> str:
        path = without_temporary_suffix(match["path"] or "")
        rest = text[: match.start()] + text[match.end() :]
        return reason_of(int(match["number"])) + (f": {path}" if path and path not in rest else "")

    return re.sub(r" \(os error \d+\)", "", _PYTHON_TEXT.sub(words, text))


def remedy_of(error: BaseException | int, *, writing: bool = True) -> str:
    """Return the remedy for an error.

    Args:
        error: an exception, or an error number.
        writing: whether a file was written rather than read.
    """
    number = error if isinstance(error, int) else errno_of(error)
    if number == errno.ENOENT:
        return _MISSING
    kind = _KINDS.get(number) if number is not None else None
    if kind is None:
        return f"check the path and your access to it, and {AGAIN}"
    return kind.to_write if writing or not kind.to_read else kind.to_read


def write_line(path: str | os.PathLike[str], error: BaseException | int) -> str:
    """Return one line about a file that cannot be written.

    Args:
        path: the file, or a flag and its value; a temporary name is replaced by the final one.
        error: an exception, or an error number.
    """
    return f"{without_temporary_suffix(path)} cannot be written ({reason_of(error)}); {remedy_of(error)}"


def read_line(path: str | os.PathLike[str], error: BaseException | int) -> str:
    """Return one line about a file that cannot be read.

    Args:
        path: the file, or a flag and its value.
        error: an exception, or an error number.
    """
    number = error if isinstance(error, int) else errno_of(error)
    if number == errno.ENOENT:
        return f"{without_temporary_suffix(path)} does not exist; {_MISSING}"
    return f"{without_temporary_suffix(path)} cannot be read ({reason_of(error)}); {remedy_of(error, writing=False)}"


def line_of(error: BaseException, default: str = "") -> str | None:
    """Return one line about a file system error that has no message for the user yet.

    Args:
        error: an exception of Python or of a library.
        default: file or directory for an error without a path, such as "--output DIR".

    Returns:
        The line, or None for another error.
    """
    if isinstance(error, FileError):
        return str(error)
    number = errno_of(error)
    if number is None:
        return None
    path = path_in(error) or default
    if not path:
        return f"a file cannot be opened, read or written ({reason_of(number)}); {remedy_of(number)}"
    if number == errno.ENOENT:
        return read_line(path, number)
    if number in _KINDS and not _KINDS[number].to_read:
        return write_line(path, number)
    return (
        f"{without_temporary_suffix(path)} cannot be opened, read or written ({reason_of(number)}); {remedy_of(number)}"
    )


def path_in(error: BaseException) -> str:
    """Return the path in an exception; "" otherwise."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return os.fsdecode(error.filename)
    # A message may contain several paths; the first one is that of the operation.
    text = str(error)
    for pattern in (_QUOTED_PATH, _BARE_PATH):
        for match in pattern.finditer(text):
            if os.sep in match[1]:
                return match[1]
    return ""


def without_temporary_suffix(path: str | os.PathLike[str]) -> str:
    """Return the final path of a temporary file; other paths are unchanged."""
    names = []
    for name in os.fspath(path).split("/"):
        if name == _TEMPORARY_FOLDER:
            continue
        match = _TEMPORARY.fullmatch(name)
        name = next(filter(None, match.groups())) if match else name
        names.append(_TENSORFLOW_NAME.sub("", name) or name)
    return "/".join(names)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert file system errors of the body, which writes a file, to a `FileError` with the name of the file.

    Errors about a missing file or directory are raised unchanged, since the caller may know more.

    Args:
        path: final path of the file.

    Raises:
        FileError: the file cannot be written.
    """
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        number = errno_of(error)
        # Errors of beambert, such as a ValueError with a message for the user, are raised unchanged.
        if number in (None, errno.ENOENT) or (isinstance(error, ValueError) and not isinstance(error, OSError)):
            raise
        raise FileError(number, reason_of(number), without_temporary_suffix(path), write_line(path, number)) from error
