"""Read plain text: a document per file, or documents that are runs of lines between blank lines.

`sentences` is the input format of google-research/bert: one sentence per line, an empty line between documents.
`bookcorpus` has one sentence per line too, with several books or one book per file.
"""

import io
import zlib
from collections.abc import Callable, Iterable, Iterator

from beambert.pipelines.documents import Document
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import Line, decode_line, decode_lines, split_at_cr


def read_text(
    stream: io.BufferedIOBase, path: str, options: ReadOptions, *, line_paragraphs: bool = False
) -> Iterator[Document]:
    """Yield the one document of a file.

    Empty lines separate paragraphs, and the lines between them are joined, as in hard-wrapped text. In a file without
    empty lines, or with `line_paragraphs`, each line is a paragraph. An empty document is yielded too, so that it is
    counted.
    """
    blocks: list[list[str]] = [[]]
    for _, line in decode_lines(stream, path, options.encoding):
        if line.strip():
            blocks[-1].append(line.strip())
        elif blocks[-1] and not line_paragraphs:
            blocks.append([])
    blocks = [block for block in blocks if block]
    paragraphs = blocks[0] if len(blocks) == 1 else [" ".join(block) for block in blocks]
    yield Document(paragraphs=paragraphs, source=path)


TEXT = InputFormat(name="text", read=read_text, recognize=lambda _stem, _head: True)


# The large files of BookCorpus (books_large_p1.txt) do not mark where a book ends. Its books average 6,700 sentences
# (74,004,228 in 11,038 books: Zhu et al. 2015, table 2). A longer run is split after sentences whose checksum is a
# multiple of this number, which depends on no other line.
_SENTENCES_PER_BOOK = 10_000


def read_runs(
    lines: Iterable[Line],
    path: str,
    options: ReadOptions,
    is_file_start: bool,
    is_end: Callable[[bytes], bool] = lambda _: False,
) -> Iterator[Document]:
    """Yield the documents after a blank line of a range, and the first one of the file.

    Lines end with LF, CRLF or CR. Several blank lines count as one; no document is empty.

    Args:
        lines: The lines of the range and those after it.
        path: Path of the file.
        options: Options of reading.
        is_file_start: Whether the range is the start of the file.
        is_end: Whether a document ends with a line.

    Raises:
        SourceError: A line is not valid in the encoding.
    """
    sentences: list[str] = []
    first = None
    # Whether the end of the previous document is in the range.
    is_owned = is_file_start
    for line in split_at_cr(lines):
        if not (line.in_range or is_owned):
            return
        is_last = is_end(line.content)
        if is_owned:
            text = decode_line(line, path, options.encoding)
            is_blank = not text.strip()
            if not is_blank:
                first = first or line
                sentences.append(text)
        else:
            is_blank = not line.content.decode(options.encoding, "replace").strip()
        if is_blank or is_last:
            if first:
                yield Document(paragraphs=sentences, source=path, segmented=True, line=first.number, byte=first.byte)
            sentences, first = [], None
            is_owned = line.in_range
    if first:
        yield Document(paragraphs=sentences, source=path, segmented=True, line=first.number, byte=first.byte)


def _ends_book(sentence: bytes) -> bool:
    return zlib.crc32(sentence.strip()) % _SENTENCES_PER_BOOK == 0


def _read_books(lines: Iterable[Line], path: str, options: ReadOptions, is_file_start: bool) -> Iterator[Document]:
    return read_runs(lines, path, options, is_file_start, _ends_book)


SENTENCES = InputFormat(name="sentences", read_lines=read_runs)
BOOKCORPUS = InputFormat(name="bookcorpus", read_lines=_read_books)
