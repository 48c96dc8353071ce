"""Recognize the format of a file, split it for several workers, and read its documents."""

import io
from collections.abc import Iterator

from beambert.pipelines.errors import SourceError
from beambert.pipelines.sources import language_reference
from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import ReadOptions, open_decompressed
from beambert.pipelines.sources.kinds import kind_of, stem_of
from beambert.pipelines.sources.lines import RangeStart
from beambert.pipelines.sources.plain_text import bookcorpus, gutenberg, sentences, text
from beambert.pipelines.sources.ranges import has_frames, index_range, lines_of_range
from beambert.pipelines.sources.structured import delimited_text, json_values, jsonl, parquet
from beambert.pipelines.sources.wikipedia import dump, wikiextractor
from beambert.pipelines.sources.wikipedia.dump_pages import is_dump

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
# Readers of the lines of a range, for formats whose documents are lines or runs of lines.
LINE_READERS = {
    "sentences": sentences.read_lines,
    "bookcorpus": bookcorpus.read_lines,
    "jsonl": jsonl.read_lines,
    "wikiextractor": wikiextractor.read_lines,
    "wikiextractor_json": wikiextractor.read_json_lines,
}
# Formats without a language field.
WITHOUT_LANGUAGES = ("sentences", "text", "bookcorpus", "gutenberg", "wikiextractor", "language_reference")
# Formats with --text_field. WikiExtractor's files have fields only in its --json format.
_WITH_FIELDS = ("jsonl", "json", "csv", "tsv", "parquet")
# Formats whose reader itself reports files of another kind.
_CHECKED_BY_READER = ("parquet", "wikipedia")

# Size of a file split in bytes by compression, for formats in `LINE_READERS`.
_SPLIT_BYTES = {".bz2": dump.SPLIT_BYTES[".bz2"], ".zst": 4 << 20, "": 16 << 20}
# Names that `auto` reads in a format whose files are read as a whole.
_WHOLE_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet")

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
        return input_format in _WITH_FIELDS or (input_format == "wikiextractor" and wikiextractor.has_json_lines(head))


def split_file(path: str, size: int, options: ReadOptions, min_bytes: int = 0) -> list[tuple[str, int, int | None]]:
    """Return the splits (path, start, stop) of a file, for several workers to read with `read_file`.

    Only the name of the file counts. If a file cannot be read in ranges, all splits but the first are empty.

    Args:
        path: Path of the file.
        size: Its size in bytes, as stored.
        options: Options of reading.
        min_bytes: Minimum size of a split, for large inputs. It does not apply to Wikipedia dumps.
    """
    if is_dump_by_name(path, options):
        return [(path, start, stop) for start, stop in dump.split(path, size)]
    stem, input_format = stem_of(path), options.input_format
    is_whole = path.lower().endswith((".gz", ".xz")) or (input_format == "auto" and stem.endswith(_WHOLE_SUFFIXES))
    if is_whole or (input_format != "auto" and input_format not in LINE_READERS):
        return [(path, 0, None)]
    suffix = next((suffix for suffix in _SPLIT_BYTES if path.lower().endswith(suffix)), "")
    step = max(_SPLIT_BYTES[suffix], min_bytes)
    return [(path, start, start + step if start + step < size else None) for start in range(0, max(size, 1), step)]


def is_dump_by_name(path: str, options: ReadOptions) -> bool:
    """Return whether a file is split as a Wikipedia dump, whose ranges are read by themselves."""
    return options.input_format == "wikipedia" or (options.input_format == "auto" and stem_of(path).endswith(".xml"))


def line_reader_of(path: str, options: ReadOptions) -> str:
    """Return how ranges of a file are read.

    Returns:
        A key of `LINE_READERS`; "wikipedia" for a dump, of which each range is read by itself; or "" if the file is
        read as a whole, because of its format or its compression.

    Raises:
        SourceError: The file cannot be opened, or is of a kind that is not text.
    """
    if options.input_format == "language_reference":
        return ""
    if options.input_format in ("auto", "wikipedia") and dump.can_split(path):
        if options.input_format == "wikipedia" or is_dump(dump.read_head(path)):
            return "wikipedia"
        if is_dump_by_name(path, options):
            return ""
    if not has_frames(path):
        return ""
    with open_decompressed(path, 2 * _HEAD_BYTES) as stream:
        head = stream.peek(_HEAD_BYTES)
    input_format = _format_of(path, head, options)
    if input_format == "wikiextractor" and wikiextractor.has_json_lines(head):
        return "wikiextractor_json"
    return input_format if input_format in LINE_READERS else ""


def read_file(
    path: str, options: ReadOptions, start: int = 0, stop: int | None = None, *, line_paragraphs: bool = False
) -> Iterator[Document]:
    """Read the documents of a file, or of one split from `split_file`.

    The line numbers of a range of text are found by reading the file up to the range. `index_range` and `locate_ranges`
    of `beambert.pipelines.sources.ranges` find those of all ranges in one reading, for `read_range`.

    Args:
        path: A path on any Beam filesystem; `.gz`, `.bz2`, `.zst` and `.xz` files are decompressed.
        options: Format, encoding and field names.
        start, stop: Byte range of the split in the file as stored; None is the end of the file.
        line_paragraphs: Whether each line of the format "text" is a paragraph, for text with one sentence per line.

    Yields:
        The documents, including rejected ones.

    Raises:
        SourceError: The file is missing, corrupt, wrongly encoded or not of its format.
    """
    if start or stop is not None:
        reader = line_reader_of(path, options)
        if reader in LINE_READERS:
            yield from _read_after_prefix(path, options, reader, start, stop)
            return
        if reader == "wikipedia":
            yield from dump.read_split(path, start, stop, options.wikitext_extractor)
            return
        if start:
            return
    yield from _read_whole_file(path, options, line_paragraphs)


def _read_after_prefix(
    path: str, options: ReadOptions, reader: str, start: int, stop: int | None
) -> Iterator[Document]:
    range_start = RangeStart(reader)
    if start:
        prefix = index_range(path, options.encoding, reader, 0, start)
        if prefix.end is None or (stop is not None and prefix.end >= stop):
            return
        range_start = RangeStart(reader, prefix.end, 1 + prefix.lines, prefix.run)
    yield from read_range(path, options, range_start, stop)


def read_range(path: str, options: ReadOptions, start: RangeStart, stop: int | None) -> Iterator[Document]:
    """Read the documents of a range of a file, with the line numbers of the file.

    The documents of all ranges, in order, are those of the complete file. Of several errors of a file, each range
    reports its own.

    Args:
        path: A path on any Beam filesystem.
        options: Format, encoding and field names.
        start: Start of the range, from `beambert.pipelines.sources.ranges.locate_ranges`.
        stop: End of the range in the file as stored; None is the end of the file.

    Raises:
        SourceError: As `read_file` does.
    """
    with lines_of_range(path, options.encoding, start, stop) as lines:
        yield from LINE_READERS[start.reader](lines, path, options, start)


def _read_whole_file(path: str, options: ReadOptions, line_paragraphs: bool) -> Iterator[Document]:
    if options.input_format == "language_reference":
        yield from language_reference.read_documents(io.BytesIO(), path, options)
        return
    input_format = options.input_format
    if (
        input_format in ("auto", "wikipedia")
        and dump.can_split(path)
        and (input_format == "wikipedia" or is_dump(dump.read_head(path)))
    ):
        yield from dump.read_split(path, extractor=options.wikitext_extractor)
        return
    with open_decompressed(path) as stream:
        if input_format not in _CHECKED_BY_READER:
            input_format = _format_of(path, stream.peek(_HEAD_BYTES), options)
        if input_format == "text":
            yield from text.read_documents(stream, path, options, line_paragraphs=line_paragraphs)
        else:
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
