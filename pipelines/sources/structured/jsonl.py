"""JSON lines: an object a line, its text in a field (`--text_field`, "text").

Title and language come from "title" and "language" if they are there.
"""

import io
import json
from collections.abc import Iterator

from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, invalid_byte, raw_lines
from pipelines.sources.structured.fields import BROKEN_RECORD, FieldReader


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield a document a line; every line of the text is a paragraph, a list of texts is a list of sentences.

    Raises:
        SourceError: a line is not a JSON object or its field holds no text, and such records stop the job.
    """
    fields = FieldReader(path, options)
    for number, raw in raw_lines(stream, path, options.encoding):
        place = f"line {number}"
        try:
            line = raw.decode(options.encoding)
        except UnicodeDecodeError as error:
            remedy = "name the true encoding, such as --encoding latin-1"
            problem, shown = invalid_byte(error, options.encoding), raw.decode(options.encoding, "replace")
            yield fields.bad(BROKEN_RECORD, problem, place, number, shown, remedy=remedy)
            continue
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield fields.bad(
                BROKEN_RECORD,
                f"not valid JSON ({json_problem(error)})",
                place,
                number,
                line.rstrip("\r\n"),
                remedy="fix the line, name the correct --input_format",
            )
            continue
        if isinstance(record, list):
            remedy = "read an array of objects with --input_format json"
            yield fields.bad(
                BROKEN_RECORD, "is a list, not an object", place, number, line.rstrip("\r\n"), remedy=remedy
            )
            continue
        yield fields.document(record, place, number, line.rstrip("\r\n"))
    fields.finish()


def json_problem(error: Exception) -> str:
    """Return what is wrong with a line of JSON, and in which column where the parser says so."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error).split(";")[0]
