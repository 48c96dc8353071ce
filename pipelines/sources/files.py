"""What every reader needs: finding files, undoing compression, decoding lines, and errors that name the place."""

import codecs
import dataclasses
import io
import lzma
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from pipelines.writing import storage_errors

_ARROW_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_BUFFER_BYTES = 1 << 20


class SourceError(ValueError):
    """An input that cannot be read as asked; the message names the file and the remedy in one line."""


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """How to read.

    Attributes:
        input_format: one of `pipelines.sources.FORMATS`; "auto" recognises each file from its content.
        encoding: of text files; any that extends ASCII.
        text_field: the field of a JSON line, or the column of a Parquet file, that holds the text.
        language_field: the field or column that states a document's language; "" for "language" where there is one.
        document_unit: "book" or "chapter": what a document of a Gutenberg book is.
    """

    input_format: str = "auto"
    encoding: str = "utf-8"
    text_field: str = "text"
    document_unit: str = "book"
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


_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")


def language_code(value: object) -> str:
    """What a file states as a document's language, if that is a code such as "en" or "pt-BR"; else ""."""
    return value if isinstance(value, str) and _LANGUAGE_CODE.fullmatch(value) else ""


def stated_language(value: object, options: ReadOptions, place: str) -> str:
    """Return what a document's field states as its language, or "" where it states none.

    Args:
        value: of the field.
        options: how to read; a `language_field` that was asked for has to hold codes.
        place: file and line, for messages.

    Raises:
        SourceError: the field was asked for and holds something else than a code.
    """
    code = language_code(value)
    if options.language_field and not code and value not in (None, ""):
        raise SourceError(
            f"{place}: field {options.language_field!r} is {str(value)[:40]!r}, not a language code such as en or "
            "pt-BR; name the field of the codes with --language_field"
        )
    return code


def match_files(patterns: list[str], flag: str = "--input") -> list[FileMetadata]:
    """Expands globs into files, sorted by path, none twice; empty files and directories are left out.

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
                found = FileSystems.match([pattern])[0].metadata_list
        except (BeamIOError, OSError, ValueError) as error:
            raise SourceError(f"{flag} {pattern} cannot be listed ({error}); check the path and your access") from error
        if not found:
            raise SourceError(
                f"{flag} {pattern} matches no file; check the path, and quote the pattern so that beambert expands it"
            )
        if not any(metadata.size_in_bytes for metadata in found):
            raise SourceError(f"{flag} {pattern} matches only empty files; give files that hold text")
        files.update((metadata.path, metadata) for metadata in found if metadata.size_in_bytes)
    return [files[path] for path in sorted(files)]


@contextmanager
def open_decompressed(path: str) -> Iterator[io.BufferedReader]:
    """Opens a file for reading bytes, decompressed by its suffix.

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
            yield io.BufferedReader(stream, _BUFFER_BYTES)
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


def decode_lines(stream: io.BufferedIOBase, path: str, encoding: str) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line without its end); LF and CRLF alike, a UTF-8 byte order mark dropped.

    Raises:
        SourceError: a line is not valid in `encoding`.
    """
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and codecs.lookup(encoding).name == "utf-8":
                raise SourceError(f"{path} is UTF-16; convert it first: iconv -f utf-16 -t utf-8")
            raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            line = raw.decode(encoding)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise SourceError(
                f"{path}, line {number}: byte 0x{byte:02x} is not valid {encoding}; "
                "name the true encoding, such as --encoding latin-1, or convert the file"
            ) from error
        yield number, line.rstrip("\r\n")
