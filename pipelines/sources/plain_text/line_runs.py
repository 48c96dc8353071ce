"""Read documents that are runs of lines between blank lines."""

import math
from collections.abc import Iterable, Iterator

from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import ReadOptions
from beambert.pipelines.sources.lines import Line, RangeStart, decode_line, split_at_cr


def read_runs(
    lines: Iterable[Line], path: str, options: ReadOptions, start: RangeStart, max_lines: float = math.inf
) -> Iterator[Document]:
    """Yield the documents whose first line is in a range of a file.

    Lines end with LF, CRLF or CR. Several blank lines count as one.

    Args:
        lines: The lines of the range and those after it.
        path: Path of the file.
        options: Options of reading.
        start: Start of the range.
        max_lines: Maximum number of lines of a document; a longer run is several documents.

    Raises:
        SourceError: A line is not valid in the encoding.
    """
    sentences: list[str] = []
    first = 0
    # Lines of a document that starts in an earlier range.
    continued = -start.run % max_lines
    for line in split_at_cr(lines):
        if not line.in_range and not sentences:
            return
        text = decode_line(line, path, options.encoding)
        is_blank = not text.strip()
        if continued:
            continued = 0 if is_blank else continued - 1
            continue
        if not is_blank:
            first = first if sentences else line.number
            sentences.append(text)
        if sentences and (is_blank or len(sentences) == max_lines):
            yield Document(sentences, source=path, segmented=True, line=first)
            sentences = []
    if sentences:
        yield Document(sentences, source=path, segmented=True, line=first)
