"""Read WikiExtractor's output, as text or as `--json`.

A text document is a line `<doc id="" url="" title="">`, the title, one paragraph per line, and `</doc>`.
"""

import dataclasses
import html
import io
import re
from collections.abc import Iterator

from pipelines.errors import SourceError
from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, decode_lines
from pipelines.sources.structured import jsonl

_TITLE_START = re.compile(r'\btitle="')

# `--json` writes these fields in this order, in some versions with "revid" between them.
_JSON = re.compile(rb'\{"id": "?\d*"?, (?:"revid": (?:null|"?\d*"?), )?"url": "[^"]*", "title": ')


def is_json(head: bytes) -> bool:
    """Return whether a file is WikiExtractor's `--json` output, by its first bytes."""
    return bool(_JSON.match(head))


def _read_json(stream: io.BufferedReader, path: str, options: ReadOptions) -> Iterator[Document]:
    for document in jsonl.read_documents(stream, path, options):
        if document.rejected:
            yield document
            continue
        title = html.unescape(document.title)
        paragraphs = [html.unescape(paragraph).strip() for paragraph in document.paragraphs if paragraph.strip()]
        if paragraphs[:1] == [title]:
            del paragraphs[0]
        yield dataclasses.replace(document, paragraphs=paragraphs, title=title)


def _title(line: str) -> str:
    """Return the title of a line `<doc ... title="...">`, or "".

    WikiExtractor does not escape quotes in titles, so the title extends to the last quote of the line.
    """
    start = _TITLE_START.search(line)
    end = line.rfind('"')
    return line[start.end() : end] if start and start.end() <= end and line.rstrip().endswith(">") else ""


def read_documents(stream: io.BufferedReader, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per `<doc>` or line of JSON, with decoded entities and without the line of the title.

    An incomplete last document, as in a truncated file, is yielded too.

    Raises:
        SourceError: There is text outside of `<doc>`.
    """
    if stream.peek(1)[:1] == b"{":
        yield from _read_json(stream, path, options)
        return
    title = ""
    first = 0
    paragraphs: list[str] | None = None
    for number, line in decode_lines(stream, path, options.encoding):
        if line.startswith("<doc "):
            if paragraphs is not None:
                yield Document(paragraphs, title=title, source=path, line=first)
            title = html.unescape(_title(line))
            paragraphs = []
            first = number
        elif line.startswith("</doc>"):
            if paragraphs is not None:
                yield Document(paragraphs, title=title, source=path, line=first)
            paragraphs = None
        elif line.strip():
            if paragraphs is None:
                raise SourceError(
                    f"{path}, line {number}: text outside of <doc ...> ... </doc>, not WikiExtractor's output; "
                    "set the correct --input_format"
                )
            text = html.unescape(line).strip()
            if paragraphs or text != title:
                paragraphs.append(text)
    if paragraphs is not None:
        yield Document(paragraphs, title=title, source=path, line=first)
