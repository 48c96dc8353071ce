"""JSON lines: an object a line, its text in a field (`--text_field`, "text"), its title and language in "title" and
"language" if they are there."""

import io
import json
from collections.abc import Iterator

from pipelines.documents import Document
from pipelines.sources.files import ReadOptions, SourceError, decode_lines, stated_language


def _storable(text: str) -> str:
    """A lone surrogate can be written in JSON but is no character and cannot be stored as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yields a document a line; every line of the text is a paragraph, a list of texts is a list of sentences.

    Raises:
        SourceError: a line is not a JSON object or lacks the field.
    """
    for number, line in decode_lines(stream, path, options.encoding):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise SourceError(
                f"{path}, line {number}: not valid JSON ({error}); mend the line, or name the true --input_format"
            ) from error
        text = record.get(options.text_field) if isinstance(record, dict) else None
        if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
            paragraphs = [_storable(sentence) for sentence in text if sentence.strip()]
        elif isinstance(text, str):
            paragraphs = _storable(text).splitlines()
        else:
            found = ", ".join(sorted(record)) if isinstance(record, dict) else f"a {type(record).__name__}"
            raise SourceError(
                f"{path}, line {number}: no text in field {options.text_field!r} (found: {found}); "
                "name the field with --text_field"
            )
        title = record.get("title")
        yield Document(
            paragraphs,
            title=_storable(title) if isinstance(title, str) else "",
            source=path,
            segmented=isinstance(text, list),
            language=stated_language(
                record.get(options.language_field or "language"), options, f"{path}, line {number}"
            ),
        )
