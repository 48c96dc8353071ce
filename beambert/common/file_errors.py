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

AGAIN = "run the same command again"
_SPACE = f"free some space and {AGAIN}"
_WRITABLE = "choose a directory that can be written, or change its permissions"
# Remedies after a write error that says that a file cannot be written.
_TO_WRITE = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: f"raise the limit on the size of a file (ulimit -f) and {AGAIN}",
    errno.EROFS: _WRITABLE,
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
}
# Of these, the errors of reading too.
_TO_READ = (errno.EACCES, errno.EPERM)
_REMEDIES = {
    **_TO_WRITE,
    errno.ENOENT: f"check the path, and if it was removed while the command ran, {AGAIN}",
    errno.EMFILE: f"raise the limit on open files (ulimit -n) and {AGAIN}",
}
_OTHER = f"check the path and the disk, and {AGAIN}"

# Formats of the number in messages of Python, Rust (safetensors), Arrow and HDF5.
_NUMBER = re.compile(r"\[errno (\d{1,4})\]|\(os error (\d{1,4})\)|\berrno = (\d{1,4})", re.IGNORECASE)
# The start and end of such a message, beside the words of the operating system.
_NUMBER_TEXT = re.compile(r"\[errno \d{1,4}\] | \(os error \d{1,4}\)", re.IGNORECASE)
# Numbers that some libraries report only by the words of the operating system.
_IN_WORDS = (*_REMEDIES, errno.EIO, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)
_NUMBERS_BY_WORDS = {os.strerror(number).lower(): number for number in _IN_WORDS}
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
    """An error while a file was written, with its final name; the text is one line: file, reason and remedy."""

    def __str__(self) -> str:
        return write_line(self.filename, self.errno or 0)


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
    return number in _TO_WRITE


def reason_of(error: BaseException | int) -> str:
    """Return the reason of an error, such as "no space left on device", without number and file.

    Args:
        error: an exception, or an error number.
    """
    number = error if isinstance(error, int) else errno_of(error)
    if number is not None:
        return os.strerror(number).lower()
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    # TensorFlow adds its operation and device before and after the reason.
    return re.sub(r"^\{\{.{0,300}?\}\} ?| \[Op:\w+\]$", "", line)


def without_numbers(text: str) -> str:
    """Return a message without error numbers, such as "[Errno 13]"."""
    return _NUMBER_TEXT.sub("", text)


def remedy_of(error: BaseException | int) -> str:
    """Return the remedy for an error.

    Args:
        error: an exception, or an error number.
    """
    number = error if isinstance(error, int) else errno_of(error)
    return _REMEDIES.get(number or 0, _OTHER)


def write_line(path: str | os.PathLike[str], error: BaseException | int) -> str:
    """Return one line about a file that cannot be written.

    Args:
        path: the file, or a flag and its value; a temporary name is replaced by the final one.
        error: an exception, or an error number.
    """
    return f"{without_temporary_suffix(path)} cannot be written ({reason_of(error)}); {remedy_of(error)}"


def line_of(error: BaseException, default: str = "") -> str | None:
    """Return one line about a file system error that has no message for the user yet.

    Args:
        error: an exception of Python or of a library.
        default: file or directory for an error without a path, such as "--output DIR".

    Returns:
        The line, or None for another error.
    """
    number = errno_of(error)
    if number is None:
        return None
    path = path_in(error) or default or "a file"
    if isinstance(error, FileError) or (cannot_write(number) and number not in _TO_READ):
        return write_line(path, number)
    reason = f"cannot be opened, read or written ({reason_of(number)})" if number != errno.ENOENT else "does not exist"
    return f"{without_temporary_suffix(path)} {reason}; {remedy_of(number)}"


def path_in(error: BaseException) -> str:
    """Return the path in an exception; "" otherwise."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return os.fsdecode(error.filename)
    # A message may contain several paths; the first one is that of the operation.
    text = str(error)
    paths = (match[1] for pattern in (_QUOTED_PATH, _BARE_PATH) for match in pattern.finditer(text))
    return next((path for path in paths if os.sep in path), "")


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
        raise FileError(number, reason_of(number), without_temporary_suffix(path)) from error
