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
    wikipedia,
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
    "wikipedia": wikipedia.read_documents,
    "language_reference": language_reference.read_documents,
}
FORMATS = ("auto", *READERS)
# Formats whose documents never state their language.
WITHOUT_LANGUAGES = ("sentences", "text", "bookcorpus", "gutenberg", "wikiextractor", "language_reference")

# Bytes looked at to recognise a format; old Gutenberg books begin with a page about their letters.
_PEEK = 4096


def recognise(name: str, head: bytes) -> str:
    """The format of a file from its name and its first decompressed bytes; "text" when nothing else fits."""
    stem = name.lower()
    for suffix in (".gz", ".bz2", ".zst", ".xz"):
        stem = stem.removesuffix(suffix)
    if head.startswith(b"PAR1"):
        return "parquet"
    if wikipedia.is_dump(head):
        return "wikipedia"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<doc ") or wikiextractor.is_json(start):
        return "wikiextractor"
    if start.startswith(b"{") or stem.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if gutenberg.is_gutenberg(head[:_PEEK]):
        return "gutenberg"
    return "text"


def split_file(path: str, size: int, options: ReadOptions) -> list[tuple[str, int, int | None]]:
    """Parts (path, start, stop) of a file, for several workers to read with `read_file`.

    Goes by the name alone: a part but the first of a file that turns out to be no Wikipedia dump is empty.

    Args:
        path: of the file.
        size: in bytes, as it is stored.
        options: how it will be read.
    """
    if options.input_format not in ("auto", "wikipedia"):
        return [(path, 0, None)]
    return [(path, start, stop) for start, stop in wikipedia.split(path, size)]


def read_file(path: str, options: ReadOptions, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """Reads the documents of one file, or of one of the parts that `split_file` makes of it.

    Args:
        path: a path on any Beam filesystem; `.gz`, `.bz2`, `.zst` and `.xz` are undone.
        options: format, encoding and field names.
        start, stop: bytes of the file as it is stored; None is its end.

    Raises:
        SourceError: the file is missing, corrupt, wrongly encoded or not of its format; the message names it.
    """
    if options.input_format == "language_reference":
        yield from language_reference.read_documents(io.BytesIO(), path, options)
        return
    input_format = options.input_format
    if input_format in ("auto", "wikipedia") and wikipedia.can_split(path):
        if input_format == "wikipedia" or wikipedia.is_dump(wikipedia.read_head(path)):
            yield from wikipedia.read_part(path, start, stop)
            return
        if start:
            return
    with open_decompressed(path) as stream:
        if input_format == "auto":
            input_format = recognise(path, stream.peek(_PEEK))
        yield from READERS[input_format](stream, path, options)


__all__ = [
    "FORMATS",
    "READERS",
    "WITHOUT_LANGUAGES",
    "ReadOptions",
    "SourceError",
    "read_file",
    "recognise",
    "split_file",
]
