"""Read CSV and TSV files: a header with column names, then one document per row.

The text is in the column `--text_field` ("text"), the title in "title" and the language in `--language_field`
("language"), if these columns exist.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

from beambert.common.formatting import counted
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import BROKEN_RECORD, FieldReader
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import decode_lines

# The largest C long on all platforms.
_MAX_FIELD_BYTES = 2**31 - 1
_DELIMITERS = ",;\t"
# Lines after a misplaced quote in which the end of the record is searched.
_MAX_REST_LINES = 100
# A header whose fields have no CR in quotes, and the next line.
_CR_LINE_ENDS = re.compile(r'(?:"[^"\r]*+"|[^"\r])*+\r.')
_ENCLOSED = re.compile(r'"((?:[^"]|"")*+)"')


def find_delimiter(header: str) -> str:
    """Return the delimiter of a CSV header: a comma, or else a semicolon or a tab."""
    return next((mark for mark in _DELIMITERS if mark in header), ",")


def read_csv(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per row of CSV. Fields with delimiters, line ends or quotes must be quoted (RFC 4180).

    Raises:
        SourceError: A column is missing, a quote is never closed, or a row is bad and `on_bad_record` is "stop".
    """
    lines = _Lines(decode_lines(stream, path, options.encoding, "surrogateescape"))
    delimiter = find_delimiter(lines.header())
    # Strict: an unclosed quote is an error, and does not consume the rest of the file.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    yield from _documents(
        _csv_rows(reader, path, lines, delimiter), path, options, f"quote fields that contain {delimiter!r}"
    )


def read_tsv(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per line of tab-separated fields. Quotes have no special meaning within a field.

    Quotes around a field are removed, because pandas and spreadsheets write them as in CSV.

    Raises:
        SourceError: A column is missing, or a row is bad and `on_bad_record` is "stop".
    """
    rows = (
        (number, [_unquoted(field) for field in line.split("\t")], line)
        for number, line in decode_lines(stream, path, options.encoding, "surrogateescape")
        if line.strip()
    )
    remedy = "use tabs only between columns, or set --input_format csv if fields with tabs are quoted"
    yield from _documents(rows, path, options, remedy)


class _Lines:
    """Iterate over lines with line ends, which a quoted field may contain, and keep those of the current row.

    Attributes:
        row: Lines of the current row.
        number: Number of lines read.
    """

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._ahead: list[str] = []
        self.row: list[str] = []
        self.number = 0

    def header(self) -> str:
        """Return the first line that is not blank, without consuming it."""
        for _, line in self._lines:
            self._ahead.append(f"{line}\n")
            if line.strip():
                return line
        return ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._ahead.pop(0) if self._ahead else f"{next(self._lines)[1]}\n"
        self.row.append(line)
        self.number += 1
        return line

    def read_rest_of_record(self, delimiter: str, columns: int) -> None:
        """Read the remaining lines of a record with a misplaced quote, if its quotes are not balanced.

        The record ends in the first line with a quote, if that closes a field. It has ended already if that opens a
        field, if a complete row without quotes comes first, or if no quote follows in the next lines.
        """
        if "".join(self.row).count('"') % 2 == 0:
            return
        length, number = len(self.row), self.number
        for line in itertools.islice(self, _MAX_REST_LINES):
            field, quote, rest = line.replace('""', "").partition('"')
            if quote and field and not field.endswith(delimiter) and rest.startswith((delimiter, "\n")):
                return
            if quote or (columns > 1 and line.count(delimiter) == columns - 1):
                break
        self._ahead[:0] = self.row[length:]
        del self.row[length:]
        self.number = number


# (number of its first line, its fields or its problem, its text as written)
_Row = tuple[int, list[str] | str, str]


def _csv_rows(reader: Any, path: str, lines: _Lines, delimiter: str) -> Iterator[_Row]:
    csv.field_size_limit(_MAX_FIELD_BYTES)
    columns = 0
    while True:
        first_line = lines.number + 1
        lines.row.clear()
        try:
            fields: list[str] | str = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise SourceError(
                    f"{path}, line {first_line}: a quote in this row is never closed; close it and double the quotes "
                    "inside fields, or set --input_format tsv if quotes have no special meaning"
                ) from error
            lines.read_rest_of_record(delimiter, columns)
            is_cr = "new-line character" in str(error)
            fields = "a carriage return (CR) outside quotes" if is_cr else f"a misplaced quote ({error})"
        if fields:
            columns = columns or len(fields)
            yield first_line, fields, "".join(lines.row).rstrip("\n")


def _documents(rows: Iterator[_Row], path: str, options: ReadOptions, remedy: str) -> Iterator[Document]:
    reader = FieldReader(path, options)
    names: list[str] | None = None
    for number, fields, raw in rows:
        location = f"line {number}"
        undecoded = _undecoded(raw, options.encoding)
        if number == 1 and _CR_LINE_ENDS.match(raw):
            raise SourceError(f"{path}: lines end with CR instead of LF; convert the file: tr '\\r' '\\n' < FILE > NEW")
        if names is None:
            names = _columns(undecoded or fields, path, options)
        elif undecoded:
            remedy_of_bytes = "set the correct encoding, such as --encoding latin-1"
            shown = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            yield reader.bad(BROKEN_RECORD, undecoded, location, number, shown, remedy=remedy_of_bytes)
        elif isinstance(fields, str):
            remedy_of_quotes = "enclose the field in quotes and double the quotes inside it"
            yield reader.bad(BROKEN_RECORD, fields, location, number, raw, remedy=remedy_of_quotes)
        elif len(fields) != len(names):
            problem = f"has {counted(len(fields), 'field')}, but the header has {len(names)}"
            yield reader.bad(BROKEN_RECORD, problem, location, number, raw, remedy=remedy)
        else:
            yield reader.document(dict(zip(names, fields, strict=True)), location, number, raw)


def _columns(header: list[str] | str, path: str, options: ReadOptions) -> list[str]:
    if isinstance(header, str):
        raise SourceError(
            f"{path}, line 1: {header}; add a header with column names to the file, and set its correct --encoding"
        )
    names = [name.strip() for name in header]
    content = ("--html_field", options.html_field) if options.html_field else ("--text_field", options.text_field)
    flags = [content, ("--id_field", options.id_field), ("--language_field", options.language_field)]
    for flag, name in [*flags, *(("--keep_fields", name) for name in options.kept_fields)]:
        if name and names.count(name) != 1:
            problem = f"column {name!r} is missing" if name not in names else f"two columns are named {name!r}"
            columns = ", ".join(map(repr, names[:20]))
            raise SourceError(
                f"{path}: {problem} (columns: {columns[:500]}); set the column with {flag}, or read a file without "
                "columns with --input_format text"
            )
    return names


def _undecoded(raw: str, encoding: str) -> str:
    """Return the byte of a row that is not valid in its encoding, decoded to a surrogate, or ""."""
    try:
        raw.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"byte 0x{ord(raw[error.start]) - 0xDC00:02x} is not valid {encoding}"
    return ""


def _unquoted(field: str) -> str:
    match = _ENCLOSED.fullmatch(field)
    return match[1].replace('""', '"') if match else field


CSV = InputFormat(
    name="csv",
    read=read_csv,
    suffixes=(".csv",),
    has_fields=True,
    has_language=True,
)
TSV = InputFormat(
    name="tsv",
    read=read_tsv,
    suffixes=(".tsv", ".tab"),
    has_fields=True,
    has_language=True,
)
