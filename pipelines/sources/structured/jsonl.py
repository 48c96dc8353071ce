"""Read JSON Lines: one object per line, with its text in the field `--text_field` ("text").

Title and language are in the fields "title" and "language", if they exist.
"""

import io
import json
from collections.abc import Iterator

from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, invalid_byte, raw_lines
from pipelines.sources.structured.fields import BROKEN_RECORD, FieldReader


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per line. Each line of a text is a paragraph; a list of strings is a list of sentences.

    Raises:
        SourceError: A line is not a JSON object or has no text, and `on_bad_record` is "stop".
    """
    fields = FieldReader(path, options)
    for number, raw in raw_lines(stream, path, options.encoding):
        location = f"line {number}"
        try:
            line = raw.decode(options.encoding)
        except UnicodeDecodeError as error:
            remedy = "set the correct encoding, such as --encoding latin-1"
            problem, shown = invalid_byte(error, options.encoding), raw.decode(options.encoding, "replace")
            yield fields.bad(BROKEN_RECORD, problem, location, number, shown, remedy=remedy)
            continue
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield fields.bad(
                BROKEN_RECORD,
                f"not valid JSON ({json_problem(error)})",
                location,
                number,
                line.rstrip("\r\n"),
                remedy="fix the line, set the correct --input_format",
            )
            continue
        if isinstance(record, list):
            remedy = "read an array of objects with --input_format json"
            yield fields.bad(
                BROKEN_RECORD, "is a list, not an object", location, number, line.rstrip("\r\n"), remedy=remedy
            )
            continue
        yield fields.document(record, location, number, line.rstrip("\r\n"))
    fields.finish()


def json_problem(error: Exception) -> str:
    """Return the problem of a line of JSON, with its column if the parser reports it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error).split(";")[0]
