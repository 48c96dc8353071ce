"""The Python language reference that ships inside every CPython (`pydoc_data.topics`), behind `help('TOPIC')`.

Real English prose that is always at hand: the demonstration and the tests need no download for it.
Its text differs a little from one Python version to the next.
"""

import io
import re
from collections.abc import Iterator

from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions

# A line of one repeated character below a heading.
_UNDERLINE = re.compile(r"^([*=\-~^\"])\1{2,}$")


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:  # noqa: ARG001
    """Yield a document for each topic; a block between empty lines is a paragraph. The stream is not read."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        lines = [line.strip() for line in topics[name].splitlines()]
        blocks = "\n".join("" if _UNDERLINE.match(line) else line for line in lines).split("\n\n")
        paragraphs = [" ".join(block.split()) for block in blocks]
        yield Document([paragraph for paragraph in paragraphs if paragraph], title=name, source=path)
