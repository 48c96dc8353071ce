"""CSV and TSV: a header that names the columns, then a document a row, its text in a column (`--text_field`, "text").

Its title and language are taken from the columns "title" and "language" (`--language_field`) if they are there.
"""

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from pipelines.errors import SourceError
from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, decode_lines
from pipelines.sources.structured.fields import BROKEN_RECORD, FieldReader

# A C long has no more on every machine.
_LARGEST_FIELD = 2**31 - 1
_DELIMITERS = ",;\t"
_ENCLOSED = re.compile(r'"((?:[^"]|"")*+)"')


def delimiter_of(header: str) -> str:
    """Return what stands between the columns of a CSV header: a comma, or else a semicolon or a tab."""
    return next((mark for mark in _DELIMITERS if mark in header), ",")


def read_csv(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield a document a row of CSV; fields with separators, line ends or quotation marks are quoted (RFC 4180).

    Raises:
        SourceError: no column of that name, a quotation mark that is never closed, or a bad row and such rows stop
            the job.
    """
    lines = _Lines(decode_lines(stream, path, options.encoding, "surrogateescape"))
    delimiter = delimiter_of(lines.header())
    # Strict: a quotation mark that is never closed is an error and does not swallow the rest of the file.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    yield from _documents(_csv_rows(reader, path, lines), path, options, f"quote fields that hold {delimiter!r}")


def read_tsv(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield a document a line of tab-separated fields, a quotation mark being a character like others.

    A field that is quoted as in CSV loses its quotes, as pandas and spreadsheets write it.

    Raises:
        SourceError: no column of that name, or a bad row and such rows stop the job.
    """
    rows = (
        (number, [_unquoted(field) for field in line.split("\t")], line)
        for number, line in decode_lines(stream, path, options.encoding, "surrogateescape")
        if line.strip()
    )
    remedy = "put tabs between columns and none inside, name --input_format csv if fields with tabs are quoted"
    yield from _documents(rows, path, options, remedy)


class _Lines:
    """Lines with their ends, which a quoted field may contain; those of the current row are kept."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._ahead: list[str] = []
        self.row: list[str] = []

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
        return line


# (line that it begins in, its fields or what is wrong with it, as it is written)
_Row = tuple[int, list[str] | str, str]


def _csv_rows(reader: Any, path: str, lines: _Lines) -> Iterator[_Row]:
    csv.field_size_limit(_LARGEST_FIELD)
    while True:
        first_line = reader.line_num + 1
        lines.row.clear()
        try:
            fields: list[str] | str = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise SourceError(
                    f"{path}, line {first_line}: a quotation mark in this row is never closed; close it and double "
                    "those inside fields, or name --input_format tsv if quotation marks are characters like others"
                ) from error
            fields = f"a quotation mark out of place ({error})"
        if fields:
            yield first_line, fields, "".join(lines.row).rstrip("\n")


def _documents(rows: Iterator[_Row], path: str, options: ReadOptions, remedy: str) -> Iterator[Document]:
    reader = FieldReader(path, options)
    names: list[str] | None = None
    for number, fields, raw in rows:
        place = f"line {number}"
        undecoded = _undecoded(raw, options.encoding)
        if names is None:
            names = _columns(undecoded or fields, path, options)
        elif undecoded:
            remedy_of_bytes = "name the true encoding, such as --encoding latin-1"
            shown = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            yield reader.bad(BROKEN_RECORD, undecoded, place, number, shown, remedy=remedy_of_bytes)
        elif isinstance(fields, str):
            problem = "close the field's quotes and double those inside it"
            yield reader.bad(BROKEN_RECORD, fields, place, number, raw, remedy=problem)
        elif len(fields) != len(names):
            problem = f"has {len(fields)} field(s) where the header has {len(names)}"
            yield reader.bad(BROKEN_RECORD, problem, place, number, raw, remedy=remedy)
        else:
            yield reader.document(dict(zip(names, fields, strict=True)), place, number, raw)


def _columns(header: list[str] | str, path: str, options: ReadOptions) -> list[str]:
    if isinstance(header, str):
        raise SourceError(
            f"{path}, line 1: {header}; give the file a header that names its columns, and name its true --encoding"
        )
    names = [name.strip() for name in header]
    fields = {"--text_field": options.text_field, "--id_field": options.id_field}
    for flag, name in {**fields, "--language_field": options.language_field}.items():
        if name and names.count(name) != 1:
            problem = f"no column {name!r} in the first line" if name not in names else f"two columns {name!r}"
            columns = ", ".join(map(repr, names[:20]))
            raise SourceError(
                f"{path}: {problem} (found: {columns[:500]}); name the column with {flag}, or read a file that is no "
                "table with --input_format text"
            )
    return names


def _undecoded(raw: str, encoding: str) -> str:
    """Return which byte of a row is not valid in its encoding, or ""; it was decoded to a surrogate."""
    try:
        raw.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"byte 0x{ord(raw[error.start]) - 0xDC00:02x} is not valid {encoding}"
    return ""


def _unquoted(field: str) -> str:
    match = _ENCLOSED.fullmatch(field)
    return match[1].replace('""', '"') if match else field
