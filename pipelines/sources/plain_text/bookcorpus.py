"""Read BookCorpus in its usual form: one sentence per line, with several books or one book per file."""

import io
from collections.abc import Iterator

from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, decode_lines

# The large files of BookCorpus (books_large_p1.txt) do not mark where a book ends. Its books average 6,700 sentences
# (74,004,228 in 11,038 books: Zhu et al. 2015, table 2). Longer runs are split, so that no document has gigabytes.
_MAX_BOOK_SENTENCES = 20_000


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield the books of one file: runs of lines between empty lines, with at most 20,000 sentences each.

    For books as running text, one per file, use `--input_format text`.
    """
    lines: list[str] = []
    first = 0
    for number, line in decode_lines(stream, path, options.encoding):
        if line.strip():
            first = first if lines else number
            lines.append(line)
        if lines and (not line.strip() or len(lines) == _MAX_BOOK_SENTENCES):
            yield Document(lines, source=path, segmented=True, line=first)
            lines = []
    if lines:
        yield Document(lines, source=path, segmented=True, line=first)
