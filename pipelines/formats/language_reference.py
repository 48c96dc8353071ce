"""Read the Python language reference that every CPython includes (`pydoc_data.topics`, the text of `help('TOPIC')`).

It is real English prose that is always available, so that the demo and the tests need no download. The text differs
slightly between Python versions.
"""

import io
import re
from collections.abc import Iterator

from beambert.pipelines.documents import Document
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions

# The underline of a heading: one repeated character.
_UNDERLINE = re.compile(r"^([*=\-~^\"])\1{2,}$")


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:  # noqa: ARG001
    """Yield one document per topic, one paragraph per block between empty lines. The stream is not read."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        lines = [line.strip() for line in topics[name].splitlines()]
        blocks = "\n".join("" if _UNDERLINE.match(line) else line for line in lines).split("\n\n")
        paragraphs = [" ".join(block.split()) for block in blocks]
        yield Document(paragraphs=[paragraph for paragraph in paragraphs if paragraph], title=name, source=path)


LANGUAGE_REFERENCE = InputFormat(name="language_reference", read=read_documents, reads_files=False)
