"""Read BookCorpus in its usual form: one sentence per line, with several books or one book per file."""

import io
from collections.abc import Iterable, Iterator

from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import ReadOptions
from beambert.pipelines.sources.lines import FILE_START, Line, RangeStart, lines_of_stream
from beambert.pipelines.sources.plain_text.line_runs import read_runs

# The large files of BookCorpus (books_large_p1.txt) do not mark where a book ends. Its books average 6,700 sentences
# (74,004,228 in 11,038 books: Zhu et al. 2015, table 2). Longer runs are split, so that no document has gigabytes.
_MAX_BOOK_SENTENCES = 20_000


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield the books of one file: runs of lines between empty lines, with at most 20,000 sentences each.

    For books as running text, one per file, use `--input_format text`.
    """
    return read_lines(lines_of_stream(stream, path, options.encoding), path, options)


def read_lines(
    lines: Iterable[Line], path: str, options: ReadOptions, start: RangeStart = FILE_START
) -> Iterator[Document]:
    """Yield the books whose first line is in a range of a file."""
    return read_runs(lines, path, options, start, _MAX_BOOK_SENTENCES)
