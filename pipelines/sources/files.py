"""Find, open, decompress and decode input files for all readers, with errors that name file and line."""

import io
import lzma
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from beambert.common.formatting import counted, replace_surrogates
from beambert.common.terminal import printable
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.frames import CODECS, FrameError, FrameReader, compression_of
from beambert.pipelines.formats.lines import Chunk
from beambert.pipelines.io.atomic_files import storage_errors

_ARROW_CODECS = {".gz": "gzip", ".bz2": "bz2"}
# The first bytes of compressed files, by suffix.
_MAGIC = {
    ".gz": (b"\x1f\x8b",),
    ".bz2": (b"BZh",),
    ".xz": (b"\xfd7zXZ\x00",),
    ".zst": (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))),
}
_BUFFER_BYTES = 1 << 20
# The path and the stream of the file that a thread has opened last.
_opened = threading.local()
_PATTERN_CHARACTERS = re.compile(r"[*?\[]")


def match_files(patterns: list[str], flag: str = "--input", *, absolute_paths: bool = True) -> list[FileMetadata]:
    """Return the distinct files that glob patterns match, sorted by path, without empty files and directories.

    Linked directories are followed, except those to a directory that contains the link. A file that is matched by
    several paths, for example through a link, is returned once per path.

    Args:
        patterns: Glob patterns of local files or of any Beam filesystem. The current directory and the home directory,
            which precede a local pattern, are literal.
        flag: The flag of the patterns, for messages.
        absolute_paths: Whether the paths of local files are absolute.

    Raises:
        SourceError: A pattern matches no files, only empty files or a broken link, or a directory that may contain
            matches cannot be listed.
    """
    files: dict[str, FileMetadata] = {}
    for typed in patterns:
        folder, relative = _split_local(typed) if absolute_paths else ("", typed)
        pattern = f"{folder}{relative}"
        try:
            with storage_errors(pattern):
                is_remote = "://" in pattern
                matches = FileSystems.match([pattern])[0].metadata_list if is_remote else _match_local(folder, relative)
        except SourceError as error:
            raise SourceError(f"{flag} {pattern} matches {error}") from error
        except re.error as error:
            raise SourceError(
                f"{flag} {pattern} is not a valid pattern ({error.msg}); give ranges in their order, such as [a-z]"
            ) from error
        except (BeamIOError, OSError, ValueError) as error:
            raise SourceError(
                f"{flag} {pattern} cannot be listed ({error}); check the path and its permissions"
            ) from error
        if _is_directory(pattern, matches):
            raise SourceError(
                f"{flag} {pattern} is a directory; give a quoted pattern such as '{pattern.rstrip('/')}/*' "
                "('**' matches files of all subdirectories)"
            )
        if not matches:
            raise SourceError(
                f"{flag} {pattern} matches no files; check the path, and quote the pattern so that beambert expands it"
            )
        for metadata in matches:
            # Manifests require names that are UTF-8.
            if replace_surrogates(metadata.path) != metadata.path:
                raise SourceError(
                    f"{flag} {pattern} matches {ascii(metadata.path)[1:-1]}, a name that is not valid UTF-8; "
                    "rename the file, or give a pattern that does not match it"
                )
        start = len(folder) + len(_literal_folder(relative))
        hidden = sorted(metadata.path for metadata in matches if _is_hidden(metadata.path[start:], relative))
        if hidden and len(hidden) == len(matches):
            raise SourceError(
                f"{flag} {pattern} matches only hidden files, such as {hidden[0]}; name the files to read"
            )
        hidden_paths = set(hidden)
        visible = {metadata.path: metadata for metadata in matches if metadata.path not in hidden_paths}
        if not any(metadata.size_in_bytes for metadata in visible.values()):
            raise SourceError(f"{flag} {pattern} matches only empty files; give files with text")
        # A name that ends in a slash stands for a directory in an object store.
        empty = sorted(path for path, file in visible.items() if not file.size_in_bytes and not path.endswith("/"))
        for skipped, kind in ((hidden, "hidden file"), (empty, "empty file")):
            if skipped:
                example = os.path.basename(skipped[0])  # noqa: PTH119
                line = f"{flag} {pattern}: skipped {counted(len(skipped), kind)}, such as {example}"
                print(printable(line), file=sys.stderr)
        files |= {path: metadata for path, metadata in visible.items() if metadata.size_in_bytes}
    return [files[path] for path in sorted(files)]


def _literal_folder(pattern: str) -> str:
    """Return the directories of a pattern before its first special character, with a slash at the end, or ""."""
    return pattern[: _PATTERN_CHARACTERS.split(pattern, maxsplit=1)[0].rfind("/") + 1]


def _is_hidden(path: str, pattern: str) -> bool:
    """Return whether a pattern matches a hidden file, or one that programs write beside their data.

    These are files and directories such as `.DS_Store`, `_SUCCESS` and `.part-0.crc`, as Hadoop and Spark have them,
    unless the pattern names them (`.*` or `_*`).

    Args:
        path: Path that the pattern matches, without the directories before its first special character.
        pattern: The pattern.
    """
    if not _PATTERN_CHARACTERS.search(pattern):
        return False
    named = {part[:1] for part in pattern.split("/")}
    return any(part[:1] in (".", "_") and part[:1] not in named for part in path.split("/")) or path.endswith(".crc")


def _split_local(pattern: str) -> tuple[str, str]:
    """Return the literal directory that precedes a local pattern, and the pattern relative to it; "" before a URL.

    The concatenation is the absolute pattern.
    """
    if "://" in pattern:
        return "", pattern.rstrip("/")
    user, _, rest = pattern.partition("/")
    home = os.path.expanduser(user)  # noqa: PTH111
    if home != user:
        folder, pattern = os.path.normpath(home), rest
    else:
        folder = "/" if pattern.startswith("/") else os.getcwd()  # noqa: PTH109
    pattern = os.path.normpath(pattern.lstrip("/"))
    while pattern.partition("/")[0] == "..":
        folder, pattern = os.path.dirname(folder), pattern[3:] or "."  # noqa: PTH120
    return (folder, "") if pattern == "." else (f"{folder.rstrip('/')}/", pattern)


def _match_local(folder: str, pattern: str) -> list[FileMetadata]:
    """Return the local files that a pattern matches, with Beam's syntax, except that * matches a backslash.

    Args:
        folder: Literal text before the pattern, a directory with a slash at the end, or "".
        pattern: Pattern relative to the directory.
    """
    start = _PATTERN_CHARACTERS.split(pattern, maxsplit=1)[0]
    if start == pattern:
        path = f"{folder}{pattern}"
        return [FileSystems.get_filesystem(path).metadata(path)] if os.path.exists(path) else []  # noqa: PTH110
    expression, prefixes = _expression(pattern), _directory_expressions(pattern)
    top = os.path.dirname(f"{folder}{start}")  # noqa: PTH120

    def may_contain_matches(directory: str) -> bool:
        return any(prefix.match(f"{directory.removeprefix(folder)}/") for prefix in prefixes)

    paths = (path for path in _files_below(top, may_contain_matches) if expression.match(path.removeprefix(folder)))
    return [metadata for path in paths if (metadata := _local_metadata(path))]


def _expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern."""
    expression = LocalFileSystem.translate_pattern(pattern).replace(r"[^/\\]*", "[^/]*")
    with warnings.catch_warnings():
        # Python warns of characters such as [ in brackets, which may get another meaning in a later version.
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(expression)


def _directory_expressions(pattern: str) -> list[re.Pattern[str]]:
    """Return expressions of which one matches each directory, with a slash at the end, that may contain matches.

    These are the prefixes of the pattern that end in a character that may match a slash.
    """
    ends = [end for end in range(1, len(pattern)) if pattern[end - 1] in "/*?]"]
    return [_expression(pattern[:end]) for end in ends] + ([_expression(pattern)] if pattern.endswith("**") else [])


def _files_below(top: str, is_entered: Callable[[str], bool]) -> Iterator[str]:
    """Yield the paths of all files in a directory and its subdirectories, including linked ones.

    Args:
        top: The directory; "" is the current directory, with relative paths.
        is_entered: Whether to enter a subdirectory. A linked directory that contains the link is never entered.

    Raises:
        SourceError: A directory cannot be listed.
    """
    # For each directory to list, the real paths of the directories on its path, which a link may lead back to.
    real_paths: dict[str, list[str]] = {top or ".": [os.path.realpath(top)]}
    skipped = 0 if top else len("./")
    for parent, directories, files in os.walk(top or ".", onerror=_report_unlistable, followlinks=True):
        yield from (os.path.join(parent, name)[skipped:] for name in files)  # noqa: PTH118
        above = real_paths.pop(parent)
        entered = []
        for name in directories:
            path = os.path.join(parent, name)  # noqa: PTH118
            real = os.path.realpath(path)
            contains_link = f"{above[-1]}/".startswith(f"{real.rstrip('/')}/")
            if is_entered(path[skipped:]) and real not in above and not contains_link:
                real_paths[path] = [*above, real]
                entered.append(name)
        directories[:] = entered


def _report_unlistable(error: OSError) -> None:
    """Raise SourceError for a directory that cannot be listed, unless it was deleted while its parent was listed."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise SourceError(
            f"files of the directory {error.filename}, which cannot be listed ({error.strerror}); set its permissions, "
            "or give a pattern that matches no files below it"
        ) from error


def _local_metadata(path: str) -> FileMetadata | None:
    """Return size and modification time of a listed file, or None if it was deleted since.

    Raises:
        SourceError: The file is a broken link, or its directory cannot be searched.
    """
    try:
        return FileMetadata(path, os.path.getsize(path), os.path.getmtime(path))  # noqa: PTH202, PTH204
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114
            raise SourceError(
                f"{path}, a broken link to {os.readlink(path)} ({error.strerror}); restore the file, delete the link, "  # noqa: PTH115
                "or give a pattern that does not match it"
            ) from error
        if isinstance(error, FileNotFoundError):
            return None
        raise SourceError(
            f"{path}, which cannot be read ({error.strerror}); set the permissions of its directory, or give a "
            "pattern that does not match it"
        ) from error


def _is_directory(pattern: str, matches: list[FileMetadata]) -> bool:
    """Return whether a pattern is a directory, or in an object store the prefix of objects."""
    if "://" not in pattern:
        return os.path.isdir(pattern)  # noqa: PTH112
    if any(metadata.size_in_bytes for metadata in matches) or any(mark in pattern for mark in "*?["):
        return False
    try:
        with storage_errors(pattern):
            return bool(FileSystems.match([f"{pattern.rstrip('/')}/*"], limits=[1])[0].metadata_list)
    except (BeamIOError, OSError, ValueError):
        return False


def require_unchanged(path: str, size: int, changed: Any) -> None:
    """Check that a file has not changed since the start of the job.

    Args:
        path: Path of the file.
        size: Its size in bytes at the start of the job.
        changed: Its modification time at the start of the job, as its filesystem reports it.

    Raises:
        SourceError: Its size or modification time differs, or it is missing.
    """
    try:
        with storage_errors(path):
            current = FileSystems.get_filesystem(path).metadata(path)
    except (BeamIOError, OSError) as error:
        raise SourceError(
            f"{path} is missing ({error}): it was deleted or renamed while the job read it; run the same command "
            "again when no other program writes there"
        ) from error
    if current.size_in_bytes != size or current.last_updated_in_seconds != changed:
        change = (
            f"{size:,} bytes when the job started, {current.size_in_bytes:,} bytes now"
            if current.size_in_bytes != size
            else "its modification time differs"
        )
        raise SourceError(
            f"{path} changed while the job read it ({change}); run the same command again when no other program "
            "writes to it"
        )


@contextmanager
def open_decompressed(path: str, buffer_bytes: int = _BUFFER_BYTES) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, and decompress it by its suffix.

    Args:
        path: A path on any Beam filesystem.
        buffer_bytes: Size of the read buffer.

    Raises:
        SourceError: The file cannot be opened, or (during reading) its compressed data is corrupt or truncated.
    """
    suffix = compression_of(path)
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            _opened.file = (path, raw)
            stream = raw
            if suffix in _ARROW_CODECS:
                stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), _ARROW_CODECS[suffix])
            elif suffix == ".xz":
                stream = lzma.LZMAFile(raw)  # noqa: SIM115 - closed with raw
            elif suffix == ".zst":
                stream = _Chunks(FrameReader(raw, CODECS[suffix]).chunks(0, None))
            yield io.BufferedReader(stream, buffer_bytes)
    except BeamIOError as error:
        raise SourceError(f"{path} cannot be opened ({error}); check the path and its permissions") from error
    except (OSError, EOFError, lzma.LZMAError) as error:
        if suffix:
            raise not_complete(path, error) from error
        raise SourceError(f"{path} cannot be read ({error}); check the file and the disk") from error


class _Chunks(io.RawIOBase):
    """A stream of the bytes of chunks."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            try:
                chunk = next(self._chunks, None)
            except FrameError as error:
                raise OSError(error) from error
            if chunk is None:
                return 0
            self._left = memoryview(chunk[0])
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def not_complete(path: str, error: Exception) -> SourceError:
    """Return the error of a compressed file that cannot be decompressed, or is not compressed."""
    suffix = compression_of(path)
    with suppress(BeamIOError, OSError), FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        if not file.read(6).startswith(_MAGIC[suffix]):
            return SourceError(f"{path} is not compressed with {suffix}, in spite of its name; rename it")
    return SourceError(
        f"{path} is not a complete {suffix} file ({error}); download it again or leave it out of --input"
    )


@contextmanager
def open_stored(path: str, buffer_bytes: int = _BUFFER_BYTES) -> Iterator[io.BufferedReader]:
    """Open a file for reading its bytes as stored, from any offset.

    Args:
        path: A path on any Beam filesystem.
        buffer_bytes: Size of the read buffer.

    Raises:
        SourceError: The file cannot be opened or read.
    """
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            _opened.file = (path, file)
            yield io.BufferedReader(file, buffer_bytes)
    except (BeamIOError, OSError) as error:
        raise SourceError(f"{path} cannot be opened or read ({error}); check the path and its permissions") from error


def read_position(path: str) -> int:
    """Return the offset, in the file as stored, up to which this thread has read a file; 0 if unknown."""
    opened, file = getattr(_opened, "file", ("", io.BytesIO()))
    try:
        return file.tell() if opened == path else 0
    except (OSError, ValueError):
        return 0  # Closed, or a stream without a position.
