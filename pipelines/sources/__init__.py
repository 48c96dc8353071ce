"""Readers: one file a format, each a plain function from a file's bytes to documents.

`read_file` opens a file on any Beam filesystem, undoes its compression, and hands it to the reader of its format.
To add a source, write `pipelines/sources/<format>.py` with a `read_documents` and name it in `READERS`
(CONTRIBUTING.md shows one).
"""

import io
from collections.abc import Iterator

from pipelines.documents import Document
from pipelines.sources import (
    bookcorpus,
    gutenberg,
    jsonl,
    language_reference,
    parquet,
    sentences,
    text,
    wikiextractor,
)
from pipelines.sources.files import ReadOptions, SourceError, open_decompressed

READERS = {
    "sentences": sentences.read_documents,
    "text": text.read_documents,
    "bookcorpus": bookcorpus.read_documents,
    "gutenberg": gutenberg.read_documents,
    "jsonl": jsonl.read_documents,
    "parquet": parquet.read_documents,
    "wikiextractor": wikiextractor.read_documents,
    "language_reference": language_reference.read_documents,
}
FORMATS = ("auto", *READERS)

# Bytes looked at to recognise a format; old Gutenberg books begin with a page about their letters.
_PEEK = 4096


def recognise(name: str, head: bytes) -> str:
    """The format of a file from its name and its first decompressed bytes; "text" when nothing else fits."""
    stem = name.lower()
    for suffix in (".gz", ".bz2", ".zst", ".xz"):
        stem = stem.removesuffix(suffix)
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<doc ") or wikiextractor.is_json(start):
        return "wikiextractor"
    if start.startswith(b"{") or stem.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if gutenberg.is_gutenberg(head[:_PEEK]):
        return "gutenberg"
    return "text"


def read_file(path: str, options: ReadOptions) -> Iterator[Document]:
    """Reads the documents of one file.

    Args:
        path: a path on any Beam filesystem; `.gz`, `.bz2`, `.zst` and `.xz` are undone.
        options: format, encoding and field names.

    Raises:
        SourceError: the file is missing, corrupt, wrongly encoded or not of its format; the message names it.
    """
    if options.input_format == "language_reference":
        yield from language_reference.read_documents(io.BytesIO(), path, options)
        return
    with open_decompressed(path) as stream:
        input_format = options.input_format
        if input_format == "auto":
            input_format = recognise(path, stream.peek(_PEEK))
        yield from READERS[input_format](stream, path, options)


__all__ = ["FORMATS", "READERS", "ReadOptions", "SourceError", "read_file", "recognise"]
