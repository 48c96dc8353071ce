"""WikiExtractor's output: `<doc id="" url="" title="">`, the title again, a paragraph a line, `</doc>`; or `--json`."""

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

# `--json` writes these fields in this order, other versions with "revid" between them.
_JSON = re.compile(rb'\{"id": "?\d*"?, (?:"revid": (?:null|"?\d*"?), )?"url": "[^"]*", "title": ')


def is_json(head: bytes) -> bool:
    """Return whether a file's first bytes are those of WikiExtractor's `--json` output."""
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
    """Return the title in a line `<doc ... title="...">`, or "" if there is none.

    WikiExtractor does not escape quotes inside a title, so the title runs to the last quote of the line.
    """
    start = _TITLE_START.search(line)
    end = line.rfind('"')
    return line[start.end() : end] if start and start.end() <= end and line.rstrip().endswith(">") else ""


def read_documents(stream: io.BufferedReader, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield a document for each `<doc>` or line of JSON; entities such as `&lt;` are undone, the title's line dropped.

    A last document without `</doc>`, as in a file cut short, is yielded as far as it goes.

    Raises:
        SourceError: text stands outside of any `<doc>`.
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
                    f"{path}, line {number}: text outside of <doc ...> ... </doc>; "
                    "not WikiExtractor's output, name the correct --input_format"
                )
            text = html.unescape(line).strip()
            if paragraphs or text != title:
                paragraphs.append(text)
    if paragraphs is not None:
        yield Document(paragraphs, title=title, source=path, line=first)
