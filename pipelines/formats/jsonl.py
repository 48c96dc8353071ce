"""Read JSON Lines: one object per line, with its text in the field `--text_field` ("text").

Title and language are in the fields "title" and "language", if they exist.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator

from beambert.pipelines.documents import Document
from beambert.pipelines.formats.fields import BROKEN_RECORD, FieldReader
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import Line, invalid_byte, start_of


def read_lines(lines: Iterable[Line], path: str, options: ReadOptions, is_file_start: bool) -> Iterator[Document]:
    """Yield one document per line. Each line of a text is a paragraph; a list of strings is a list of sentences.

    Raises:
        SourceError: A line is not a JSON object or has no text, and `on_bad_record` is "stop".
    """
    # The first range checks the fields for the complete file, on its first records.
    fields = FieldReader(path, options, checks_fields=is_file_start)
    for line in lines:
        if not line.in_range and not fields.is_checking:
            return
        document = _document(line, fields, options)
        if document and line.in_range:
            yield document if line.byte < 0 else dataclasses.replace(document, byte=line.byte)
    fields.finish()


def _document(line: Line, fields: FieldReader, options: ReadOptions) -> Document | None:
    """Return the document of a line, or None for a blank line."""
    raw, number, location = line.content, line.number, line.location
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


def is_jsonl(stem: str, head: bytes) -> bool:
    """Return whether a file is JSON Lines, by its lowercase name without a compression suffix and its first bytes."""
    return start_of(head).startswith(b"{") or stem.endswith((".jsonl", ".ndjson"))


JSONL = InputFormat(name="jsonl", recognize=is_jsonl, read_lines=read_lines, has_fields=True, has_language=True)
