"""Output files of commands: refuse what would destroy a file, write atomically.

The rule for every flag that names one output file: a file that exists is refused unless --overwrite is given, and a
file that the command reads is refused always. This file imports neither Beam nor TensorFlow.
"""

import contextlib
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from beambert_common import file_errors
from beambert_common.atomic_files import synchronize
from beambert_common.command_line.path_flags import STREAM_FOLDERS
from beambert_common.signals import cleanup_on_signals
from pipelines.errors import OutputFileError

# A (flag, path) that a command reads: a file, a directory with all that is in it, the prefix of a checkpoint, a URL,
# or - for stdin.
InputPath = tuple[str, str]
# Names of this process's open files, which a shell may have redirected to a regular file that it has just made.
_STREAMS = ("/dev/stdout", "/dev/stderr")
_NAME_CHARACTERS = 40


def check_output_file(
    flag: str,
    path: str,
    inputs: Iterable[InputPath] = (),
    *,
    overwrite: bool | None = False,
    makes_directory: bool = False,
    takes_stream: bool = True,
    exists: Callable[[str], bool] = os.path.exists,
) -> None:
    """Refuse an output file that the command must not write.

    Call it before TensorFlow or Beam are imported and before any work.

    Args:
        flag: the flag that names the file, such as "--output_file".
        path: its value; a local path or a URL.
        inputs: everything the command reads.
        overwrite: whether an existing file may be replaced; None for a command without --overwrite.
        makes_directory: whether the command makes a missing parent directory.
        takes_stream: whether the command can write to a device or a pipe.
        exists: returns whether a URL exists; local paths are looked up here.

    Raises:
        OutputFileError: the file exists and `overwrite` is false, is one of the inputs, is a directory or a stream, or
            has no directory to be written in.
    """
    inputs = [(name, place) for name, place in inputs if place]
    if "://" in path:
        _check_url(flag, path, inputs, overwrite, exists)
        return
    if not path:
        raise OutputFileError(f"{flag} is empty; give the name of a file")
    status = _status(path)
    if path.endswith(os.sep) or (status is not None and stat.S_ISDIR(status.st_mode)):
        raise OutputFileError(f"{flag} {path} is a directory; give the name of a file")
    if not takes_stream and is_stream(path):
        raise OutputFileError(f"{flag} {path} is a device or a pipe; give the name of a file")
    if status is not None and not stat.S_ISREG(status.st_mode):
        return
    if status is not None:
        for name, place in inputs:
            if _is_input_file(status, place):
                relation = "is the same file as" if _is_same(status, place) else "is a file of"
                raise OutputFileError(
                    f"{flag} {path} {relation} {name} {_shown(place)}, which would be replaced; give another {flag}"
                )
        if not overwrite and not _is_stream(path):
            raise _exists(flag, path, overwrite)
    if not _is_stream(path):
        _check_directory(flag, path, makes_directory)


def check_stdout(inputs: Iterable[InputPath]) -> None:
    """Refuse to write to stdout where a shell appends it to a file that the command reads.

    Raises:
        OutputFileError: stdout is one of the inputs.
    """
    try:
        status = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
    for name, place in inputs:
        if place and stat.S_ISREG(status.st_mode) and _is_same(status, place):
            raise OutputFileError(f"stdout is the same file as {name} {_shown(place)}; redirect it to another file")


class OutputFile:
    """A file that appears complete under its name, or not at all; use as a context manager.

    with OutputFile("--output_file", path) as output:
        output.path.write_bytes(content)

    A device, a pipe or another stream, which has no name to be renamed to, is written directly. SIGTERM and SIGHUP
    remove what was written before they end the process.

    Args:
        flag: the flag that names the file, for messages.
        path: the file; its directory exists.
        overwrite: whether a file that exists when the block ends is replaced.

    Attributes:
        path: what to write: a temporary file in the same directory, made empty, or the stream itself. Open it for
            appending: a shell may have redirected a stream to a file that is not empty.

    Raises:
        OutputFileError: the file cannot be written; at the end of the block, it appeared meanwhile or its directory
            vanished.
    """

    def __init__(self, flag: str, path: str | Path, *, overwrite: bool = False) -> None:
        self._flag, self._name, self._overwrite = flag, str(path), overwrite
        self._signals = contextlib.ExitStack()
        self.is_stream = is_stream(self._name)
        # Through a symbolic link the file that it points to is replaced, not the link.
        self._final = Path(os.path.realpath(path))
        self.path = Path(path)
        if self.is_stream:
            return
        unique = f".{self._final.name[:_NAME_CHARACTERS]}.{uuid.uuid4().hex[:12]}.unfinished"
        self.path = self._final.with_name(unique)
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except OSError as error:
            raise OutputFileError(file_errors.write_line(f"{flag} {path}", error)) from error

    def __enter__(self) -> "OutputFile":
        self._signals.enter_context(cleanup_on_signals(self.discard))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
            else:
                self.discard()
        finally:
            self._signals.close()

    def discard(self) -> None:
        """Remove what was written."""
        if not self.is_stream:
            self.path.unlink(missing_ok=True)

    def commit(self) -> None:
        """Give the file its name. Call it once, after the file was closed."""
        if self.is_stream:
            return
        try:
            synchronize(self.path)
            # Not `open_atomic`: libraries write the file by its path, and without --overwrite nothing is replaced.
            if self._overwrite:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copymode(self._final, self.path)
                self.path.replace(self._final)
            else:
                self._link()
        except FileNotFoundError as error:
            raise OutputFileError(
                f"{self._flag} {self._name}: {_vanished(self._final.parent, self.path)} was removed while the command "
                "ran; run the same command again"
            ) from error
        except OSError as error:
            self.discard()
            raise OutputFileError(file_errors.write_line(f"{self._flag} {self._name}", error)) from error

    def _link(self) -> None:
        """Rename without replacing: fails where another process has made the file meanwhile."""
        try:
            os.link(self.path, self._final)
        except FileExistsError as error:
            raise self._exists_error() from error
        except FileNotFoundError:
            raise
        except OSError as error:
            # A filesystem without hard links.
            if os.path.lexists(self._final):
                raise self._exists_error() from error
            self.path.rename(self._final)
        else:
            self.path.unlink()

    def _exists_error(self) -> OutputFileError:
        parent = Path(self._name).parent
        # As the user names it, unless a symbolic link leads elsewhere.
        path = parent / self.path.name if parent.resolve() == self._final.parent else self.path
        return OutputFileError(
            f"{self._flag} {self._name} was made by another process while the command ran; the result is in {path}"
        )


def is_stream(path: str) -> bool:
    """Return whether a path is a device, a pipe or an open file of this process rather than a file to be made."""
    status = _status(path)
    return _is_stream(path) or (status is not None and not stat.S_ISREG(status.st_mode))


def _check_url(
    flag: str, path: str, inputs: Iterable[InputPath], overwrite: bool | None, exists: Callable[[str], bool]
) -> None:
    for name, place in inputs:
        if place == path:
            raise OutputFileError(f"{flag} {path} is the same file as {name} {place}; give another {flag}")
    if not overwrite and exists(path):
        raise _exists(flag, path, overwrite)


def _exists(flag: str, path: str, overwrite: bool | None) -> OutputFileError:
    remedy = "delete it" if overwrite is None else "give --overwrite to replace it"
    return OutputFileError(f"{flag} {path} exists; {remedy}, or give another {flag}")


def _check_directory(flag: str, path: str, makes_directory: bool) -> None:
    """Refuse a file whose directory is missing, is a file, or cannot be written."""
    folder = Path(os.path.realpath(path)).parent
    if makes_directory:
        folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not folder.exists():
        raise OutputFileError(
            f"{flag} {path} cannot be written: directory {folder} does not exist; make it, or give another {flag}"
        )
    if not folder.is_dir():
        raise OutputFileError(f"{flag} {path} cannot be written: {folder} is a file; give another {flag}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputFileError(f"{flag} {path} cannot be written: directory {folder} is read-only; give another {flag}")


def _status(path: str) -> os.stat_result | None:
    """Return the status of what a path leads to, None where there is nothing."""
    try:
        return Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_stream(path: str) -> bool:
    place = os.path.abspath(path)  # noqa: PTH100
    return place in _STREAMS or place.startswith(STREAM_FOLDERS)


def _is_same(output: os.stat_result, place: str) -> bool:
    """Return whether an input is the very file that the output's name leads to."""
    if place == "-":
        try:
            return os.path.samestat(output, os.fstat(sys.stdin.fileno()))
        except (OSError, ValueError, AttributeError):
            return False
    status = None if "://" in place else _status(place)
    return status is not None and os.path.samestat(output, status)


def _is_input_file(output: os.stat_result, place: str) -> bool:
    """Return whether an input is the output, or has it among its files."""
    if _is_same(output, place):
        return True
    if place == "-" or "://" in place:
        return False
    return any(os.path.samestat(output, file.stat()) for file in _files_of(Path(place)) if file.exists())


def _files_of(place: Path) -> Iterator[Path]:
    """Yield the files that come with an input: those of a directory, and those beside a checkpoint."""
    if place.is_dir():
        for folder, _, names in os.walk(place):
            yield from (Path(folder, name) for name in names)
    elif ".ckpt" in place.name or Path(f"{place}.index").exists():
        yield from (file for file in place.parent.glob("*") if file.is_file())


def _shown(place: str) -> str:
    return "(stdin)" if place == "-" else place


def _vanished(folder: Path, temporary: Path) -> Path:
    return temporary if folder.is_dir() else folder
