"""Find the format of a file, split it for several workers, and read its documents with the reader of its format."""

import io
from collections.abc import Iterator

from pipelines.errors import SourceError
from pipelines.sources import language_reference
from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions, open_decompressed
from pipelines.sources.kinds import kind_of, stem_of
from pipelines.sources.plain_text import bookcorpus, gutenberg, sentences, text
from pipelines.sources.structured import delimited_text, json_values, jsonl, parquet
from pipelines.sources.wikipedia import dump, wikiextractor
from pipelines.sources.wikipedia.dump_pages import is_dump

READERS = {
    "sentences": sentences.read_documents,
    "text": text.read_documents,
    "bookcorpus": bookcorpus.read_documents,
    "gutenberg": gutenberg.read_documents,
    "jsonl": jsonl.read_documents,
    "json": json_values.read_documents,
    "csv": delimited_text.read_csv,
    "tsv": delimited_text.read_tsv,
    "parquet": parquet.read_documents,
    "wikiextractor": wikiextractor.read_documents,
    "wikipedia": dump.read_documents,
    "language_reference": language_reference.read_documents,
}
# Formats whose documents never state their language.
WITHOUT_LANGUAGES = ("sentences", "text", "bookcorpus", "gutenberg", "wikiextractor", "language_reference")
# Those whose reader takes --text_field; WikiExtractor's files have fields if they are of its --json.
_WITH_FIELDS = ("jsonl", "json", "csv", "tsv", "parquet")
# Those whose reader itself says what is wrong with a file of another kind.
_CHECKED_BY_READER = ("parquet", "wikipedia")

# Bytes looked at to recognize a format; old Gutenberg books begin with a page about their letters.
_PEEK = 4096


def recognize_format(name: str, head: bytes) -> str:
    """Return the format of a file from its name and its first decompressed bytes; "text" when nothing else fits."""
    stem = stem_of(name)
    if head.startswith(b"PAR1"):
        return "parquet"
    if is_dump(head):
        return "wikipedia"
    start = head[:_PEEK].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<doc ") or wikiextractor.is_json(start):
        return "wikiextractor"
    if json_values.is_json(stem, start):
        return "json"
    if start.startswith(b"{") or stem.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if stem.endswith(".csv"):
        return "csv"
    if stem.endswith((".tsv", ".tab")):
        return "tsv"
    if gutenberg.is_gutenberg(head[:_PEEK]):
        return "gutenberg"
    return "text"


def _format_of(path: str, head: bytes, options: ReadOptions) -> str:
    """Return the format that a file is read as.

    Raises:
        SourceError: it is of a kind that holds no text as it is; the message says which, and what to do.
    """
    requested = options.input_format
    input_format = recognize_format(path, head) if requested == "auto" else requested
    kind = kind_of(path, head) if input_format not in _CHECKED_BY_READER else None
    # Who names a format has decided how text is read; no name makes text of an image.
    if kind and (kind.binary or requested == "auto"):
        raise SourceError(f"{path} is {kind.name}; {kind.remedy}")
    return input_format


def check_file(path: str, options: ReadOptions) -> bool:
    """Look at the first bytes of a file: whether it is of a format with fields, which `--text_field` chooses from.

    Raises:
        SourceError: it cannot be opened, or is of a kind that holds no text as it is.
    """
    if options.input_format == "wikipedia":
        return False
    if options.input_format == "auto" and dump.can_split(path) and is_dump(dump.read_head(path)):
        return False
    with open_decompressed(path, 2 * _PEEK) as stream:
        head = stream.peek(_PEEK)
        input_format = _format_of(path, head, options)
        return input_format in _WITH_FIELDS or (input_format == "wikiextractor" and head.startswith(b"{"))


def split_file(path: str, size: int, options: ReadOptions) -> list[tuple[str, int, int | None]]:
    """Return the splits (path, start, stop) of a file, for several workers to read with `read_file`.

    Goes by the name alone: a part but the first of a file that turns out to be no Wikipedia dump is empty.

    Args:
        path: of the file.
        size: in bytes, as it is stored.
        options: how it will be read.
    """
    if options.input_format not in ("auto", "wikipedia"):
        return [(path, 0, None)]
    return [(path, start, stop) for start, stop in dump.split(path, size)]


def read_file(path: str, options: ReadOptions, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """Read the documents of one file, or of one split of `split_file`.

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
    if input_format in ("auto", "wikipedia") and dump.can_split(path):
        if input_format == "wikipedia" or is_dump(dump.read_head(path)):
            yield from dump.read_shard(path, start, stop)
            return
        if start:
            return
    with open_decompressed(path) as stream:
        if input_format not in _CHECKED_BY_READER:
            input_format = _format_of(path, stream.peek(_PEEK), options)
        yield from READERS[input_format](stream, path, options)


def is_one_document(path: str, options: ReadOptions) -> bool:
    """Return whether a file is known to be a single document before it is read: plain text.

    Args:
        path: a path on any Beam filesystem.
        options: how it will be read.

    Raises:
        SourceError: the file cannot be opened.
    """
    input_format = options.input_format
    if input_format == "auto":
        with open_decompressed(path) as stream:
            input_format = recognize_format(path, stream.peek(_PEEK))
    return input_format == "text"
