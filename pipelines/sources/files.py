"""Files for every reader: finding them, undoing compression, decoding lines, and errors that name the place."""

import codecs
import dataclasses
import io
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from pipelines.errors import SourceError
from pipelines.io.atomic_files import storage_errors
from pipelines.sources.wide_encodings import wide_encoding

_ARROW_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_BUFFER_BYTES = 1 << 20
DEFAULT_TEXT_FIELD = "text"


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options of reading.

    Attributes:
        input_format: one of `pipelines.sources.FORMATS`; "auto" recognizes each file from its content.
        encoding: of text files; any that extends ASCII.
        text_field: the field of a JSON line, or the column of a Parquet file, that holds the text.
        language_field: the field or column that states a document's language; "" for "language" where there is one.
        document_unit: "book" or "chapter": what a document of a Gutenberg book is.
        id_field: the field or column that identifies a document for the user, or "".
        on_bad_record: one of `pipelines.sources.input_formats.BAD_RECORD_ACTIONS`:
            what becomes of a record that cannot be read or has no text in its
            field.
    """

    input_format: str = "auto"
    encoding: str = "utf-8"
    text_field: str = DEFAULT_TEXT_FIELD
    document_unit: str = "book"
    id_field: str = ""
    on_bad_record: str = "stop"
    language_field: str = ""

    def __post_init__(self) -> None:
        try:
            ascii_compatible = "\n{<".encode(self.encoding) == b"\n{<"
        except LookupError:
            ascii_compatible = False
        if not ascii_compatible:
            raise SourceError(
                f"--encoding {self.encoding} is unknown or does not extend ASCII; "
                f"convert the files first: iconv -f {self.encoding} -t utf-8 FILE"
            )


def match_files(patterns: list[str], flag: str = "--input") -> list[FileMetadata]:
    """Expand globs into files, sorted by path, none twice; empty files and directories are left out.

    Args:
        patterns: of local files or of any Beam filesystem.
        flag: what they were given with, for messages.

    Raises:
        SourceError: a pattern matches nothing, or nothing but empty files.
    """
    files: dict[str, FileMetadata] = {}
    for pattern in patterns:
        try:
            with storage_errors(pattern):
                matches = FileSystems.match([pattern])[0].metadata_list
        except (BeamIOError, OSError, ValueError) as error:
            raise SourceError(f"{flag} {pattern} cannot be listed ({error}); check the path and your access") from error
        if _is_directory(pattern, matches):
            raise SourceError(
                f"{flag} {pattern} is a directory; give a quoted pattern such as '{pattern.rstrip('/')}/*' "
                "(files of all its folders: '**')"
            )
        if not matches:
            raise SourceError(
                f"{flag} {pattern} matches no file; check the path, and quote the pattern so that beambert expands it"
            )
        if not any(metadata.size_in_bytes for metadata in matches):
            raise SourceError(f"{flag} {pattern} matches only empty files; give files that hold text")
        for metadata in matches:
            if not _is_utf8(metadata.path):
                raise SourceError(
                    f"{flag} {pattern} matches {ascii(metadata.path)[1:-1]}, a name that is not valid UTF-8; "
                    "rename the file, or give a pattern that does not match it"
                )
        files.update((metadata.path, metadata) for metadata in matches if metadata.size_in_bytes)
    return [files[path] for path in sorted(files)]


def _is_utf8(text: str) -> bool:
    """Return whether a text can be written as UTF-8, as names of files must be to stand in a manifest."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_directory(pattern: str, matches: list[FileMetadata]) -> bool:
    """Return whether a pattern is the path of a directory, or in an object store a prefix of objects."""
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
    """Check that a file is still the one that the job was started with.

    Args:
        path: of the file.
        size: in bytes, when the job was started.
        changed: when it was last changed, as its filesystem says it.

    Raises:
        SourceError: its size or its time is another one, or it is gone.
    """
    try:
        with storage_errors(path):
            now = FileSystems.get_filesystem(path).metadata(path)
    except (BeamIOError, OSError) as error:
        raise SourceError(
            f"{path} cannot be found any more ({error}): it was deleted or renamed while the job read it; "
            "run the same again when no other program writes there"
        ) from error
    if now.size_in_bytes != size or now.last_updated_in_seconds != changed:
        change = (
            f"{size:,} bytes when the job started, {now.size_in_bytes:,} now"
            if now.size_in_bytes != size
            else "its modification time is another one"
        )
        raise SourceError(
            f"{path} changed while the job read it ({change}); run the same again when no other program writes to it"
        )


@contextmanager
def open_decompressed(path: str, buffer_bytes: int = _BUFFER_BYTES) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes, decompressed by its suffix.

    Args:
        path: on any Beam filesystem.
        buffer_bytes: read at once.

    Raises:
        SourceError: the file cannot be opened, or (while it is read) its compressed data is damaged or cut short.
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
        raise SourceError(
            f"{path} cannot be opened ({error}); check that it exists and that you may read it"
        ) from error
    except (OSError, EOFError, lzma.LZMAError) as error:
        if suffix in _ARROW_CODECS or suffix == ".xz":
            raise SourceError(
                f"{path} is not a whole {suffix} file ({error}); fetch it again or leave it out of --input"
            ) from error
        raise SourceError(f"{path} cannot be read ({error}); check the file and the disk") from error


def decode_lines(
    stream: io.BufferedIOBase, path: str, encoding: str, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end); LF and CRLF alike, a UTF-8 byte order mark dropped.

    Raises:
        SourceError: a line is not valid in `encoding`, and `errors` is "strict".
    """
    for number, raw in raw_lines(stream, path, encoding):
        try:
            line = raw.decode(encoding, errors)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{path}, line {number}: {invalid_byte(error, encoding)}; "
                "name the true encoding, such as --encoding latin-1, or convert the file"
            ) from error
        yield number, line.rstrip("\r\n")


def raw_lines(stream: io.BufferedIOBase, path: str, encoding: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, bytes of the line with its end), a UTF-8 byte order mark dropped.

    Raises:
        SourceError: the file is UTF-16 or UTF-32.
    """
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            if (wide := wide_encoding(raw)) and codecs.lookup(encoding).name == "utf-8":
                raise SourceError(
                    f"{path} is {wide}; convert it first: iconv -f {wide.lower()} -t utf-8 FILE > FILE.txt"
                )
            raw = raw.removeprefix(codecs.BOM_UTF8)
        yield number, raw


def invalid_byte(error: UnicodeDecodeError, encoding: str) -> str:
    """Return which byte cannot be decoded: "byte 0xe4 is not valid utf-8"."""
    return f"byte 0x{error.object[error.start]:02x} is not valid {encoding}"
