"""Read WikiExtractor's output, as text or as `--json`.

A text document is a line `<doc id="" url="" title="">`, the title, one paragraph per line, and `</doc>`.
"""

import codecs
import dataclasses
import html
import io
import re
from collections.abc import Iterable, Iterator

from beambert.pipelines.errors import SourceError
from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import ReadOptions
from beambert.pipelines.sources.lines import FILE_START, Line, RangeStart, decode_line, lines_of_stream
from beambert.pipelines.sources.structured import jsonl

_TITLE_START = re.compile(r'\btitle="')

# Some versions mark headings and list items, and put placeholders in place of code and formulas.
_MARK = re.compile(r"(?:Section::::|BULLET::::[-*#:;]*)\s*")
_PLACEHOLDER = re.compile(r"\b(?:codice|formula)_\d+\b")

# `--json` writes these fields in this order, in some versions with "revid" between them.
_JSON = re.compile(rb'\{"id": "?\d*"?, (?:"revid": (?:null|"?\d*"?), )?"url": "[^"]*", "title": ')


def is_json(head: bytes) -> bool:
    """Return whether a file is WikiExtractor's `--json` output, by its first bytes."""
    return bool(_JSON.match(head))


def has_json_lines(head: bytes) -> bool:
    """Return whether a file of WikiExtractor has lines of JSON, by its first bytes, rather than `<doc>`."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")


def read_json_lines(
    lines: Iterable[Line], path: str, options: ReadOptions, start: RangeStart = FILE_START
) -> Iterator[Document]:
    """Yield one document per line of `--json` output in a range of a file."""
    for document in jsonl.read_lines(lines, path, options, start):
        if document.rejected:
            yield document
            continue
        title = html.unescape(document.title)
        paragraphs = [cleaned for cleaned in map(_clean, document.paragraphs) if cleaned]
        if paragraphs[:1] == [title]:
            del paragraphs[0]
        yield dataclasses.replace(document, paragraphs=paragraphs, title=title)


def _clean(paragraph: str) -> str:
    """Decode entities, and remove the marks and placeholders of WikiExtractor."""
    text = html.unescape(paragraph).strip()
    if "::::" in text and (mark := _MARK.match(text)):
        text = text[mark.end() :]
    return _PLACEHOLDER.sub("", text).strip() if "_" in text else text


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
    read = read_json_lines if has_json_lines(stream.peek(1)) else read_lines
    return read(lines_of_stream(stream, path, options.encoding), path, options)


def read_lines(
    lines: Iterable[Line], path: str, options: ReadOptions, start: RangeStart = FILE_START
) -> Iterator[Document]:
    """Yield the documents whose `<doc>` is in a range of a file, as `read_documents` does for the complete file."""
    title = ""
    first = 0
    paragraphs: list[str] | None = None
    # The lines before the first `<doc>` of a later range continue a document of an earlier one.
    in_earlier_range = not start.is_file_start
    for line in lines:
        text = decode_line(line, path, options.encoding)
        is_start = text.startswith("<doc ")
        if is_start and paragraphs is not None:
            yield Document(paragraphs, title=title, source=path, line=first)
            paragraphs = None
        if not line.in_range and (is_start or in_earlier_range):
            return
        if is_start:
            title = html.unescape(_title(text))
            paragraphs = []
            first = line.number
            in_earlier_range = False
        elif in_earlier_range:
            continue
        elif text.startswith("</doc>"):
            if paragraphs is not None:
                yield Document(paragraphs, title=title, source=path, line=first)
            paragraphs = None
        elif text.strip():
            if paragraphs is None:
                raise SourceError(
                    f"{path}, line {line.number}: text outside of <doc ...> ... </doc>, not WikiExtractor's output; "
                    "set the correct --input_format"
                )
            paragraph = _clean(text)
            if paragraph and (paragraphs or paragraph != title):
                paragraphs.append(paragraph)
    if paragraphs is not None:
        yield Document(paragraphs, title=title, source=path, line=first)
