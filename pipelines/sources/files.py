"""Find, open, decompress and decode input files for all readers, with errors that name file and line."""

import dataclasses
import io
import lzma
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from pipelines.errors import SourceError
from pipelines.io.atomic_files import storage_errors
from pipelines.sources.lines import decode_line, lines_of_stream

_ARROW_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_BUFFER_BYTES = 1 << 20
DEFAULT_TEXT_FIELD = "text"
_PATTERN_CHARACTERS = re.compile(r"[*?\[]")


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options of reading.

    Attributes:
        input_format: One of `pipelines.sources.FORMATS`; "auto" recognizes each file from its content.
        encoding: Encoding of text files, an extension of ASCII.
        text_field: Field or column with the text.
        document_unit: Document of a Gutenberg book, "book" or "chapter".
        id_field: Field or column with the user's document ID, or "".
        on_bad_record: Action for a record that cannot be read or has no text, one of
            `pipelines.sources.input_formats.BAD_RECORD_ACTIONS`.
        language_field: Field or column with the language code; "" for "language", if the field exists.
        wikitext_extractor: Extractor of the pages of a Wikipedia dump, one of
            `pipelines.sources.input_formats.WIKITEXT_EXTRACTORS`.
    """

    input_format: str = "auto"
    encoding: str = "utf-8"
    text_field: str = DEFAULT_TEXT_FIELD
    document_unit: str = "book"
    id_field: str = ""
    on_bad_record: str = "stop"
    language_field: str = ""
    wikitext_extractor: str = "beambert"

    def __post_init__(self) -> None:
        try:
            ascii_compatible = "\n{<".encode(self.encoding) == b"\n{<"
        except (LookupError, ValueError):
            ascii_compatible = False
        if not ascii_compatible:
            raise SourceError(
                f"invalid --encoding {self.encoding}: unknown, or not an extension of ASCII; convert the files first: "
                f"iconv -f {self.encoding} -t utf-8 FILE"
            )


def match_files(patterns: list[str], flag: str = "--input", *, absolute_paths: bool = True) -> list[FileMetadata]:
    """Return the distinct files that glob patterns match, sorted by path, without empty files and directories.

    Args:
        patterns: Glob patterns of local files or of any Beam filesystem. The current directory and the home directory,
            which precede a local pattern, are literal.
        flag: The flag of the patterns, for messages.
        absolute_paths: Whether the paths of local files are absolute.

    Raises:
        SourceError: A pattern matches no files, or only empty files.
    """
    files: dict[str, FileMetadata] = {}
    for typed in patterns:
        folder, relative = _split_local(typed) if absolute_paths else ("", typed)
        pattern = f"{folder}{relative}"
        try:
            with storage_errors(pattern):
                is_remote = "://" in pattern
                matches = FileSystems.match([pattern])[0].metadata_list if is_remote else _match_local(folder, relative)
        except (BeamIOError, OSError, ValueError, re.error) as error:
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
        if not any(metadata.size_in_bytes for metadata in matches):
            raise SourceError(f"{flag} {pattern} matches only empty files; give files with text")
        for metadata in matches:
            if not _is_utf8(metadata.path):
                raise SourceError(
                    f"{flag} {pattern} matches {ascii(metadata.path)[1:-1]}, a name that is not valid UTF-8; "
                    "rename the file, or give a pattern that does not match it"
                )
        files.update((metadata.path, metadata) for metadata in matches if metadata.size_in_bytes)
    return [files[path] for path in sorted(files)]


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
    expression = re.compile(LocalFileSystem.translate_pattern(pattern).replace(r"[^/\\]*", "[^/]*"))
    top = os.path.dirname(f"{folder}{start}")  # noqa: PTH120
    files = []
    for parent, _, names in os.walk(top or "."):
        for name in names:
            path = os.path.join(parent, name) if top else os.path.relpath(os.path.join(parent, name))  # noqa: PTH118
            if expression.match(path.removeprefix(folder)):
                # A file may be deleted while it is listed.
                with suppress(OSError):
                    files.append(FileMetadata(path, os.path.getsize(path), os.path.getmtime(path)))  # noqa: PTH202, PTH204
    return files


def _is_utf8(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, which manifests require of file names."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


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
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            stream = raw
            if suffix in _ARROW_CODECS:
                stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), _ARROW_CODECS[suffix])
            elif suffix == ".xz":
                stream = lzma.LZMAFile(raw)  # noqa: SIM115 - closed with raw
            yield io.BufferedReader(stream, buffer_bytes)
    except BeamIOError as error:
        raise SourceError(f"{path} cannot be opened ({error}); check the path and its permissions") from error
    except (OSError, EOFError, lzma.LZMAError) as error:
        if suffix in _ARROW_CODECS or suffix == ".xz":
            raise SourceError(
                f"{path} is not a complete {suffix} file ({error}); download it again or leave it out of --input"
            ) from error
        raise SourceError(f"{path} cannot be read ({error}); check the file and the disk") from error


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
            yield io.BufferedReader(file, buffer_bytes)
    except (BeamIOError, OSError) as error:
        raise SourceError(f"{path} cannot be opened or read ({error}); check the path and its permissions") from error


def decode_lines(
    stream: io.BufferedIOBase, path: str, encoding: str, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without LF or CRLF), without a UTF-8 byte order mark.

    Raises:
        SourceError: A line is not valid in `encoding`, and `errors` is "strict"; or the file is UTF-16 or UTF-32.
    """
    for line in lines_of_stream(stream, path, encoding):
        yield line.number, decode_line(line, path, encoding, errors)
