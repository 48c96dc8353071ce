"""Read WikiExtractor's output, as text or as `--json`.

A text document is a line `<doc id="" url="" title="">`, the title, one paragraph per line, and `</doc>`.
"""

import dataclasses
import html
import re
from collections.abc import Iterable, Iterator

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import jsonl
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import Line, decode_line, start_of

_TITLE_START = re.compile(r'\btitle="')

# Some versions mark headings and list items, and put placeholders in place of code and formulas.
_MARK = re.compile(r"(?:Section::::|BULLET::::[-*#:;]*)\s*")
_PLACEHOLDER = re.compile(r"\b(?:codice|formula)_\d+\b")

# `--json` writes these fields in this order, in some versions with "revid" between them.
_JSON = re.compile(rb'\{"id": "?\d*"?, (?:"revid": (?:null|"?\d*"?), )?"url": "[^"]*", "title": ')


def is_wikiextractor(_stem: str, head: bytes) -> bool:
    """Return whether a file is WikiExtractor's output, by its first bytes."""
    start = start_of(head)
    return start.startswith(b"<doc ") or bool(_JSON.match(start))


def find_layout(head: bytes) -> InputFormat | None:
    """Return the format of `--json` output for a file that begins with JSON, or None for `<doc>`."""
    return WIKIEXTRACTOR_JSON if start_of(head).startswith(b"{") else None


def read_json_lines(lines: Iterable[Line], path: str, options: ReadOptions, is_file_start: bool) -> Iterator[Document]:
    """Yield one document per line of `--json` output in a range of a file."""
    for document in jsonl.read_lines(lines, path, options, is_file_start):
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


def read_lines(lines: Iterable[Line], path: str, options: ReadOptions, is_file_start: bool) -> Iterator[Document]:
    """Yield the documents whose `<doc>` is in a range, with decoded entities and without the line of the title.

    An incomplete last document, as in a truncated file, is yielded too.

    Raises:
        SourceError: There is text outside of `<doc>`.
    """
    title = ""
    # The line `<doc ...>` of the open document.
    first: Line | None = None
    paragraphs: list[str] = []

    def document(first: Line) -> Document:
        return Document(paragraphs=paragraphs, title=title, source=path, line=first.number, byte=first.byte)

    # The lines before the first `<doc>` of a later range continue a document of an earlier one.
    in_earlier_range = not is_file_start
    for line in lines:
        text = decode_line(line, path, options.encoding)
        is_start = text.startswith("<doc ")
        is_end = is_start or text.startswith("</doc>")
        if is_end and first:
            yield document(first)
            first = None
        if not line.in_range and (is_start or in_earlier_range):
            return
        if is_start:
            title, first, paragraphs = html.unescape(_title(text)), line, []
            in_earlier_range = False
        elif in_earlier_range or is_end or not text.strip():
            continue
        elif first is None:
            raise SourceError(
                f"{path}, {line.location}: text outside of <doc ...> ... </doc>, not WikiExtractor's output; "
                "set the correct --input_format"
            )
        elif (paragraph := _clean(text)) and (paragraphs or paragraph != title):
            paragraphs.append(paragraph)
    if first:
        yield document(first)


WIKIEXTRACTOR_JSON = InputFormat(name="wikiextractor_json", read_lines=read_json_lines, has_fields=True)
WIKIEXTRACTOR = InputFormat(name="wikiextractor", recognize=is_wikiextractor, read_lines=read_lines, layout=find_layout)
