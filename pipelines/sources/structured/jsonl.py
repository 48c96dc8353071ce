"""Read JSON Lines: one object per line, with its text in the field `--text_field` ("text").

Title and language are in the fields "title" and "language", if they exist.
"""

import io
import json
from collections.abc import Iterable, Iterator

from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import ReadOptions
from beambert.pipelines.sources.lines import FILE_START, Line, RangeStart, invalid_byte, lines_of_stream
from beambert.pipelines.sources.structured.fields import BROKEN_RECORD, FieldReader


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per line. Each line of a text is a paragraph; a list of strings is a list of sentences.

    Raises:
        SourceError: A line is not a JSON object or has no text, and `on_bad_record` is "stop".
    """
    return read_lines(lines_of_stream(stream, path, options.encoding), path, options)


def read_lines(
    lines: Iterable[Line], path: str, options: ReadOptions, start: RangeStart = FILE_START
) -> Iterator[Document]:
    """Yield one document per line of a range, as `read_documents` does for the complete file."""
    # The first range checks the fields for the complete file, on its first records.
    fields = FieldReader(path, options, checks_fields=start.is_file_start)
    for line in lines:
        if not line.in_range and not fields.is_checking:
            return
        document = _document(line, fields, options)
        if document and line.in_range:
            yield document
    fields.finish()


def _document(line: Line, fields: FieldReader, options: ReadOptions) -> Document | None:
    """Return the document of a line, or None for a blank line."""
    number, raw, _ = line
    location = f"line {number}"
    try:
        text = raw.decode(options.encoding)
    except UnicodeDecodeError as error:
        remedy = "set the correct encoding, such as --encoding latin-1"
        problem, shown = invalid_byte(error, options.encoding), raw.decode(options.encoding, "replace")
        return fields.bad(BROKEN_RECORD, problem, location, number, shown, remedy=remedy)
    if not text.strip():
        return None
    shown = text.rstrip("\r\n")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = "fix the line, set the correct --input_format"
        return fields.bad(
            BROKEN_RECORD, f"not valid JSON ({json_problem(error)})", location, number, shown, remedy=remedy
        )
    if isinstance(record, list):
        remedy = "read an array of objects with --input_format json"
        return fields.bad(BROKEN_RECORD, "is a list, not an object", location, number, shown, remedy=remedy)
    return fields.document(record, location, number, shown)


def json_problem(error: Exception) -> str:
    """Return the problem of a line of JSON, with its column if the parser reports it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error).split(";")[0]
