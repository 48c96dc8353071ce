"""WikiExtractor's output: `<doc id="" url="" title="">`, the title again, a paragraph a line, `</doc>`."""

import html
import io
import re
from collections.abc import Iterator

from pipelines.documents import Document
from pipelines.sources.files import ReadOptions, SourceError, decode_lines

# WikiExtractor does not escape quotes inside a title, so the title runs to the last quote of the line.
_TITLE = re.compile(r'\btitle="(.*)"[^"]*>\s*$')


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yields a document for each `<doc>`; entities such as `&lt;` are undone, the title's own line is dropped.

    A last document without `</doc>`, as in a file cut short, is yielded as far as it goes.

    Raises:
        SourceError: text stands outside of any `<doc>`.
    """
    title = ""
    paragraphs: list[str] | None = None
    for number, line in decode_lines(stream, path, options.encoding):
        if line.startswith("<doc "):
            if paragraphs is not None:
                yield Document(paragraphs, title=title, source=path)
            match = _TITLE.search(line)
            title = html.unescape(match.group(1)) if match else ""
            paragraphs = []
        elif line.startswith("</doc>"):
            if paragraphs is not None:
                yield Document(paragraphs, title=title, source=path)
            paragraphs = None
        elif line.strip():
            if paragraphs is None:
                raise SourceError(
                    f"{path}, line {number}: text outside of <doc ...> ... </doc>; "
                    "not WikiExtractor's output, name the true --input_format"
                )
            text = html.unescape(line).strip()
            if paragraphs or text != title:
                paragraphs.append(text)
    if paragraphs is not None:
        yield Document(paragraphs, title=title, source=path)
