"""Read the input format of google-research/bert: one sentence per line, an empty line between documents."""

import io
from collections.abc import Iterable, Iterator

from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import ReadOptions
from beambert.pipelines.sources.lines import FILE_START, Line, RangeStart, lines_of_stream
from beambert.pipelines.sources.plain_text.line_runs import read_runs


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield the documents of one file. Several blank lines count as one; no document is empty."""
    return read_lines(lines_of_stream(stream, path, options.encoding), path, options)


def read_lines(
    lines: Iterable[Line], path: str, options: ReadOptions, start: RangeStart = FILE_START
) -> Iterator[Document]:
    """Yield the documents whose first line is in a range of a file."""
    return read_runs(lines, path, options, start)
