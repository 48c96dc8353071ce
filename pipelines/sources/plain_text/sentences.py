"""Read the input format of google-research/bert: one sentence per line, an empty line between documents."""

import io
from collections.abc import Iterator

from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, decode_lines


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield the documents of one file. Several blank lines count as one; no document is empty."""
    lines: list[str] = []
    first = 0
    for number, line in decode_lines(stream, path, options.encoding):
        if line.strip():
            first = first if lines else number
            lines.append(line)
        elif lines:
            yield Document(lines, source=path, segmented=True, line=first)
            lines = []
    if lines:
        yield Document(lines, source=path, segmented=True, line=first)
