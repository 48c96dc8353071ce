"""Read plain text with one document per file."""

import io
from collections.abc import Iterator

from beambert.pipelines.documents import Document
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import decode_lines


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
