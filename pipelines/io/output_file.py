"""Check and write the output files of commands, without overwriting other files.

The rule for every flag of an output file: an existing file is rejected unless --overwrite is given, and an input file
of the command is always rejected. This module imports neither Beam nor TensorFlow.
"""

import contextlib
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from beambert.common import file_errors
from beambert.common.command_line.path_flags import STREAM_FOLDERS
from beambert.common.local_files import synchronize
from beambert.common.signals import ended_by_signals
from beambert.pipelines.errors import OutputFileError

# (flag, path) of an input: a file, a directory with all its files, the prefix of a checkpoint, a URL, or - for stdin.
InputPath = tuple[str, str]
# Names of this process's streams, which a shell may have redirected to a new regular file.
_STREAMS = ("/dev/stdout", "/dev/stderr")
_MAX_NAME_CHARACTERS = 40


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
    """Check that a command may write an output file.

    Call it before TensorFlow or Beam are imported and before any work.

    Args:
        flag: The flag of the file, such as "--output_file".
        path: Value of the flag, a local path or a URL.
        inputs: All inputs of the command.
        overwrite: Whether an existing file may be replaced; None for a command without --overwrite.
        makes_directory: Whether the command creates a missing parent directory.
        takes_stream: Whether the command can write to a device or a pipe.
        exists: Function that returns whether a URL exists; local paths are checked without it.

    Raises:
        OutputFileError: The file exists and `overwrite` is false, is one of the inputs, is a directory or a stream, or
            its directory is missing or not writable.
    """
    inputs = [(input_flag, source) for input_flag, source in inputs if source]
    if "://" in path:
        for input_flag, source in inputs:
            if source == path:
                raise OutputFileError(f"{flag} {path} is the same file as {input_flag} {source}; give another {flag}")
        if not overwrite and exists(path):
            raise _exists(flag, path, overwrite)
        return
    if not path:
        raise OutputFileError(f"{flag} is empty; give a file")
    status = _status(path)
    if path.endswith(os.sep) or (status is not None and stat.S_ISDIR(status.st_mode)):
        raise OutputFileError(f"{flag} {path} is a directory; give a file")
    to_stream = is_stream(path)
    if to_stream and not takes_stream:
        raise OutputFileError(f"{flag} {path} is a device or a pipe; give a regular file")
    if status is not None and not stat.S_ISREG(status.st_mode):
        return
    if status is not None:
        for input_flag, source in inputs:
            if _is_input_file(status, source):
                relation = "is the same file as" if _is_same(status, source) else "is a file of"
                raise OutputFileError(
                    f"{flag} {path} {relation} {input_flag} {_shown(source)}, which would be replaced; give another "
                    f"{flag}"
                )
        if not overwrite and not to_stream:
            raise _exists(flag, path, overwrite)
    if not to_stream:
        _check_directory(flag, path, makes_directory)


def check_stdout(inputs: Iterable[InputPath]) -> None:
    """Check that stdout is not redirected to an input file of the command.

    Raises:
        OutputFileError: It is.
    """
    try:
        status = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
    for input_flag, source in inputs:
        if source and stat.S_ISREG(status.st_mode) and _is_same(status, source):
            raise OutputFileError(
                f"stdout is the same file as {input_flag} {_shown(source)}; redirect it to another file"
            )


class OutputFile:
    """Write a file atomically; a context manager.

    with OutputFile("--output_file", path) as output:
        output.path.write_bytes(content)

    A device, a pipe or another stream is written directly. SIGTERM and SIGHUP remove the temporary file before they end
    the process.

    Args:
        flag: The flag of the file, for messages.
        path: The file, in an existing directory.
        overwrite: Whether to replace a file that exists when the block ends.

    Attributes:
        path: The path to write: a new, empty temporary file in the same directory, or the stream itself. Open it for
            appending: a shell may have redirected a stream to a file that is not empty.

    Raises:
        OutputFileError: The file is not writable. At the end of the block: another process has created it, or its
            directory has disappeared.
    """

    def __init__(self, flag: str, path: str | Path, *, overwrite: bool = False) -> None:
        self._flag, self._name, self._overwrite = flag, str(path), overwrite
        self._signals = contextlib.ExitStack()
        self.is_stream = is_stream(self._name)
        # Replace the target of a symbolic link, not the link.
        self._final = Path(os.path.realpath(path))
        self.path = Path(path)
        if self.is_stream:
            return
        unique = f".{self._final.name[:_MAX_NAME_CHARACTERS]}.{uuid.uuid4().hex[:12]}.unfinished"
        self.path = self._final.with_name(unique)
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except OSError as error:
            raise OutputFileError(file_errors.write_line(f"{flag} {path}", error)) from error

    def __enter__(self) -> "OutputFile":
        self._signals.enter_context(ended_by_signals())
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
        """Remove the temporary file."""
        if not self.is_stream:
            self.path.unlink(missing_ok=True)

    def commit(self) -> None:
        """Rename the temporary file to its final name. Call it once, after the file is closed."""
        if self.is_stream:
            return
        try:
            synchronize(self.path)
            # Not `open_atomic`: libraries write the file by its path, and without --overwrite no file is replaced.
            if self._overwrite:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copymode(self._final, self.path)
                self.path.replace(self._final)
            else:
                self._rename_to_new()
        except FileNotFoundError as error:
            missing = self.path if self._final.parent.is_dir() else self._final.parent
            raise OutputFileError(
                f"{self._flag} {self._name}: {missing} was removed while the command ran; run the same command again"
            ) from error
        except OSError as error:
            self.discard()
            raise OutputFileError(file_errors.write_line(f"{self._flag} {self._name}", error)) from error

    def _rename_to_new(self) -> None:
        """Rename without replacing a file that another process has created, also at the same moment."""
        try:
            try:
                os.link(self.path, self._final)
            except (FileExistsError, FileNotFoundError):
                raise
            except OSError:  # The filesystem has no hard links.
                if os.path.lexists(self._final):
                    raise FileExistsError from None
                self.path.rename(self._final)
            else:
                self.path.unlink()
        except FileExistsError as error:
            typed = Path(self._name).with_name(self.path.name)
            # The path as typed, unless a symbolic link leads to another directory.
            result = typed if typed.exists() else self.path
            raise OutputFileError(
                f"{self._flag} {self._name} was created by another process while the command ran; the result is in "
                f"{result}"
            ) from error


def is_stream(path: str) -> bool:
    """Return whether a path is a device, a pipe or a stream of this process rather than a regular file."""
    absolute, status = os.path.abspath(path), _status(path)  # noqa: PTH100
    is_named_stream = absolute in _STREAMS or absolute.startswith(STREAM_FOLDERS)
    return is_named_stream or (status is not None and not stat.S_ISREG(status.st_mode))


def _exists(flag: str, path: str, overwrite: bool | None) -> OutputFileError:
    remedy = "delete it" if overwrite is None else "use --overwrite to replace it"
    return OutputFileError(f"{flag} {path} already exists; {remedy}, or give another {flag}")


def _check_directory(flag: str, path: str, makes_directory: bool) -> None:
    """Raise OutputFileError for a file whose directory is missing, is a file, or is not writable."""
    folder = Path(os.path.realpath(path)).parent
    if makes_directory:
        folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not folder.exists():
        raise OutputFileError(
            f"{flag} {path} cannot be written: directory {folder} does not exist; create it, or give another {flag}"
        )
    if not folder.is_dir():
        raise OutputFileError(f"{flag} {path} cannot be written: {folder} is a file; give another {flag}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputFileError(f"{flag} {path} cannot be written: directory {folder} is read-only; give another {flag}")


def _status(path: str) -> os.stat_result | None:
    """Return the status of the target of a path, or None if it does not exist."""
    try:
        return Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_same(output: os.stat_result, source: str) -> bool:
    """Return whether an input is the same file as the output."""
    if source == "-":
        try:
            return os.path.samestat(output, os.fstat(sys.stdin.fileno()))
        except (OSError, ValueError, AttributeError):
            return False
    status = None if "://" in source else _status(source)
    return status is not None and os.path.samestat(output, status)


def _is_input_file(output: os.stat_result, source: str) -> bool:
    """Return whether the output is an input, a file in its directory, or a file beside a checkpoint."""
    if _is_same(output, source):
        return True
    if source == "-" or "://" in source:
        return False
    folder = Path(source)
    if folder.is_dir():
        files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
        return any(os.path.samestat(output, file.stat()) for file in files if file.exists())
    is_checkpoint = ".ckpt" in folder.name or Path(f"{source}.index").exists()
    return is_checkpoint and any(
        os.path.samestat(output, file.stat()) for file in folder.parent.glob("*") if file.is_file()
    )


def _shown(source: str) -> str:
    return "(stdin)" if source == "-" else source
