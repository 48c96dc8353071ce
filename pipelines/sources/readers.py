"""Recognize the format of a file, split it for several workers, and read its documents."""

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
# Formats without a language field.
WITHOUT_LANGUAGES = ("sentences", "text", "bookcorpus", "gutenberg", "wikiextractor", "language_reference")
# Formats with --text_field. WikiExtractor's files have fields only in its --json format.
_WITH_FIELDS = ("jsonl", "json", "csv", "tsv", "parquet")
# Formats whose reader itself reports files of another kind.
_CHECKED_BY_READER = ("parquet", "wikipedia")

# Bytes to recognize a format; old Gutenberg books begin with a page about their character set.
_HEAD_BYTES = 4096


def recognize_format(name: str, head: bytes) -> str:
    """Return the format of a file by its name and its first decompressed bytes; "text" if no other format matches."""
    stem = stem_of(name)
    if head.startswith(b"PAR1"):
        return "parquet"
    if is_dump(head):
        return "wikipedia"
    start = head[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
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
    if gutenberg.is_gutenberg(head[:_HEAD_BYTES]):
        return "gutenberg"
    return "text"


def _format_of(path: str, head: bytes, options: ReadOptions) -> str:
    """Return the format with which to read a file.

    Raises:
        SourceError: The file is of a kind that is not text. The message contains the kind and the remedy.
    """
    requested = options.input_format
    input_format = recognize_format(path, head) if requested == "auto" else requested
    kind = kind_of(path, head) if input_format not in _CHECKED_BY_READER else None
    # An explicit format overrides the recognition of markup, but not of binary files.
    if kind and (kind.binary or requested == "auto"):
        raise SourceError(f"{path} is {kind.name}; {kind.remedy}")
    return input_format


def check_file(path: str, options: ReadOptions) -> bool:
    """Check the first bytes of a file, and return whether its format has fields, from which `--text_field` selects.

    Raises:
        SourceError: The file cannot be opened, or is of a kind that is not text.
    """
    if options.input_format == "wikipedia":
        return False
    if options.input_format == "auto" and dump.can_split(path) and is_dump(dump.read_head(path)):
        return False
    with open_decompressed(path, 2 * _HEAD_BYTES) as stream:
        head = stream.peek(_HEAD_BYTES)
        input_format = _format_of(path, head, options)
        return input_format in _WITH_FIELDS or (input_format == "wikiextractor" and head.startswith(b"{"))


def split_file(path: str, size: int, options: ReadOptions) -> list[tuple[str, int, int | None]]:
    """Return the splits (path, start, stop) of a file, for several workers to read with `read_file`.

    Only the name of the file counts. If the file is not a Wikipedia dump, all splits but the first are empty.

    Args:
        path: Path of the file.
        size: Its size in bytes, as stored.
        options: Options of reading.
    """
    if options.input_format not in ("auto", "wikipedia"):
        return [(path, 0, None)]
    return [(path, start, stop) for start, stop in dump.split(path, size)]


def read_file(path: str, options: ReadOptions, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """Read the documents of a file, or of one split from `split_file`.

    Args:
        path: A path on any Beam filesystem; `.gz`, `.bz2`, `.zst` and `.xz` files are decompressed.
        options: Format, encoding and field names.
        start, stop: Byte range of the split in the file as stored; None is the end of the file.

    Yields:
        The documents, including rejected ones.

    Raises:
        SourceError: The file is missing, corrupt, wrongly encoded or not of its format.
    """
    if options.input_format == "language_reference":
        yield from language_reference.read_documents(io.BytesIO(), path, options)
        return
    input_format = options.input_format
    if input_format in ("auto", "wikipedia") and dump.can_split(path):
        if input_format == "wikipedia" or is_dump(dump.read_head(path)):
            yield from dump.read_split(path, start, stop, options.wikitext_extractor)
            return
        if start:
            return
    with open_decompressed(path) as stream:
        if input_format not in _CHECKED_BY_READER:
            input_format = _format_of(path, stream.peek(_HEAD_BYTES), options)
        yield from READERS[input_format](stream, path, options)


def is_one_document(path: str, options: ReadOptions) -> bool:
    """Return whether a file is a single document, because its format is plain text.

    Args:
        path: A path on any Beam filesystem.
        options: Options of reading.

    Raises:
        SourceError: The file cannot be opened.
    """
    input_format = options.input_format
    if input_format == "auto":
        with open_decompressed(path) as stream:
            input_format = recognize_format(path, stream.peek(_HEAD_BYTES))
    return input_format == "text"
