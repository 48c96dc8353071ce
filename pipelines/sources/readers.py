"""Recognize the formats of files, divide them into splits for several workers, and read the documents of a split.

Files that are not text are recognized too: archives, documents, databases, other binary data, web pages and XML. Their
first bytes determine the kind, and the name only if the bytes are ambiguous. Ordinary text must never match, regardless
of its first character.
"""

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from beambert.common.imports import import_failure, is_installed
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import FORMATS, get_format, reads_files, recognize
from beambert.pipelines.formats.frames import (
    CHUNK_BYTES,
    GZIP,
    FrameError,
    FrameReader,
    codec_of,
    compression_of,
    find_frame,
    plain_chunks,
    read_head,
    stem_of,
)
from beambert.pipelines.formats.input_format import InputFormat, RangeReader, ReadOptions
from beambert.pipelines.formats.lines import Line, lines_of_chunks, start_of, wide_encoding
from beambert.pipelines.formats.text import TEXT, read_text
from beambert.pipelines.sources.files import not_complete, open_decompressed, open_stored, require_unchanged

# Bytes to recognize a format; old Gutenberg books begin with a page about their character set.
_HEAD_BYTES = 4096
_AS_TEXT = "or read it unchanged with --input_format text"


class Kind(NamedTuple):
    """A kind of file, and the remedy for it.

    Attributes:
        name: Its name with an article, such as "a tar archive".
        remedy: An imperative sentence without a period.
        binary: Whether the file is never text; --input_format text reads other kinds.
    """

    name: str
    remedy: str
    binary: bool = True


_PANDOC = "extract its text first, such as with pandoc --to plain FILE --output FILE.txt"
_TAR = Kind("a tar archive", "unpack it first (tar -x -f FILE) and give its files")
_ZIP = Kind("a zip archive or office document", "unpack it first (unzip FILE), or extract its text with pandoc")
_BINARY = Kind("binary data, not text", "leave it out of --input, or export its text first")

# Kinds by their first bytes.
_MAGIC = {
    b"PAR1": Kind("a Parquet file", "read it with --input_format parquet"),
    b"%PDF-": Kind("a PDF document", "extract its text first, such as with pdftotext FILE FILE.txt"),
    b"%!PS-Adobe": Kind("a PostScript document", "extract its text first, such as with ps2ascii FILE FILE.txt"),
    b"{\\rtf": Kind("an RTF document", _PANDOC),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": Kind("an old Office document (doc, xls, ppt)", "save it as text first"),
    b"SQLite format 3\0": Kind(
        "an SQLite database", "export the text first: sqlite3 -json FILE 'select ... from ...' > FILE.json"
    ),
    b"Rar!\x1a\x07": Kind("a RAR archive", "unpack it first (unrar x FILE) and give its files"),
    b"7z\xbc\xaf'\x1c": Kind("a 7z archive", "unpack it first (7z x FILE) and give its files"),
    b"PK\x03\x04": _ZIP,
    b"PK\x05\x06": _ZIP,
    b"ARROW1\0\0": Kind("an Arrow file", "write it as Parquet first (pyarrow.parquet.write_table)"),
    **dict.fromkeys([b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"OggS\0", b"\x93NUMPY", b"Obj\x01"], _BINARY),
}
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"BZh91AY&SY": ("bzip2", ".bz2"),
    b"\x28\xb5\x2f\xfd": ("zstandard", ".zst"),
    b"\xfd7zXZ\0": ("xz", ".xz"),
}
_TAR_SUFFIXES = (".tgz", ".tbz", ".tbz2", ".txz", ".tzst")

_XML = Kind("XML, but not a MediaWiki dump", f"convert it to text or JSON Lines first, {_AS_TEXT}", binary=False)

_XML_START = re.compile(rb"<\?xml\s+version\s*=")

# Control characters except tab, line ends, form feed and escape, which occur in text files.
_CONTROL_BYTES = bytes([*range(9), 11, *range(14, 27), *range(28, 32)])
_LEAST_CONTROL_BYTES = 8
_CONTROL_SHARE = 0.01


def kind_of(name: str, head: bytes) -> Kind | None:
    """Return the kind of a file that is not readable as text, or None.

    MediaWiki dumps are XML too, so the caller must check for them first.

    Args:
        name: Name of the file.
        head: Its first bytes, at least 512 if the file has them, decompressed if its name has a compression suffix.
    """
    head = head[:_HEAD_BYTES]
    return _binary_kind(stem_of(name), head) or _markup_kind(stem_of(name), start_of(head))


def _binary_kind(stem: str, head: bytes) -> Kind | None:
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return _TAR
    for magic, (method, suffix) in _COMPRESSED.items():
        if head.startswith(magic):
            if stem.endswith(_TAR_SUFFIXES):
                return _TAR
            return Kind(f"compressed with {method}, but its name lacks the suffix", f"rename it to FILE{suffix}")
    if encoding := wide_encoding(head):
        return Kind(encoding, f"convert it first: iconv -f {encoding.lower()} -t utf-8 FILE > FILE.txt")
    control = len(head) - len(head.translate(None, _CONTROL_BYTES))
    return _BINARY if control >= max(_LEAST_CONTROL_BYTES, _CONTROL_SHARE * len(head)) else None


def _markup_kind(stem: str, start: bytes) -> Kind | None:
    is_xml = start.startswith(b"<") and (_XML_START.match(start) or stem.endswith(".xml"))
    return _XML if is_xml else None


# Size of a range of lines in bytes, by the compression of the file.
_LINE_RANGE_BYTES = {".bz2": 2 << 20, ".zst": 4 << 20, "": 16 << 20}
# A compressed file is split if its second frame is in these first bytes; the tools that write frames make smaller ones.
MAX_FRAME_BYTES = 16 << 20
# Number of ranges that a large input of text is divided into, to bound the size of the job that is sent to a cluster.
_MAX_RANGES = 4096


class Input(NamedTuple):
    """An input file.

    Attributes:
        path: path of the file.
        bytes: its size.
        changed: its modification time.
        origin: the --input pattern that matched it.
        weight: sampling weight of its documents.
    """

    path: str
    bytes: int
    changed: Any
    origin: str
    weight: float


class FileSplit(NamedTuple):
    """A file split, read by one worker; `start` and `stop` are from `split_file`."""

    input: Input
    start: int
    stop: int | None

    @property
    def bytes(self) -> int:
        """Return the size of the split in bytes."""
        return (self.input.bytes if self.stop is None else self.stop) - self.start

    @property
    def is_whole_file(self) -> bool:
        """Return whether the split is the complete file."""
        return not self.start and self.stop is None

    def name(self) -> str:
        """Return a name derived from the file and the range of the split."""
        return hashlib.blake2b(json.dumps(self).encode("utf-8"), digest_size=12).hexdigest()


def _read_head(path: str) -> bytes:
    """Return the first bytes of a file, decompressed. The rest of a file may be corrupt."""
    if compression_of(path) in (".gz", ".xz", ".zst"):
        try:
            with open_decompressed(path, 2 * _HEAD_BYTES) as stream:
                return stream.peek(_HEAD_BYTES)
        except SourceError:
            # Some formats read a file around its corrupt parts.
            head = _start_of_corrupt_file(path)
            if not recognize(path, head).reports_other_kinds:
                raise
            return head
    with open_stored(path, 2 * _HEAD_BYTES) as file:
        return read_head(file, path, _HEAD_BYTES)


def _start_of_corrupt_file(path: str) -> bytes:
    """Return the first bytes of the first member of a compressed file, or b"" if they are corrupt too."""
    codec = GZIP if compression_of(path) == ".gz" else codec_of(path)
    if codec is None:
        return b""
    with open_stored(path, 2 * _HEAD_BYTES) as file:
        try:
            return next(codec.read_frame(file), b"")[:_HEAD_BYTES]
        except (EOFError, codec.error):
            return b""


def find_format(path: str, options: ReadOptions, stream: io.BufferedReader | None = None) -> InputFormat:
    """Return the format with which to read a file. The file is opened only if its content decides.

    Args:
        path: Path of the file.
        options: Options of reading.
        stream: The decompressed file, if it is open already.

    Raises:
        SourceError: The file cannot be opened, or is of a kind that is not text. The message has the kind and the
            remedy.
    """
    is_auto = options.input_format == "auto"
    requested = None if is_auto else get_format(options.input_format)
    # A format that reports other kinds of files itself may read a truncated file up to its end.
    if requested and (requested.reports_other_kinds or not requested.reads_files):
        _require_package(requested, path)
        return requested
    head = stream.peek(_HEAD_BYTES) if stream else _read_head(path)
    input_format = requested or recognize(path, head[:_HEAD_BYTES])
    kind = None if input_format.reports_other_kinds else kind_of(path, head)
    # An explicit format overrides the recognition of markup, but not of binary files.
    if kind and (kind.binary or is_auto):
        raise SourceError(f"{path} is {kind.name}; {kind.remedy}")
    _require_package(input_format, path)
    return (input_format.layout and input_format.layout(head)) or input_format


def _require_package(input_format: InputFormat, path: str) -> None:
    """Raise SourceError if the package of a format is not installed."""
    if input_format.package and not is_installed(input_format.package):
        problem = import_failure(ModuleNotFoundError(name=input_format.package), "web")
        raise SourceError(f"{path} has the format {input_format.name}: {problem}")


def _format_by_name(path: str, options: ReadOptions) -> InputFormat | None:
    """Return the requested format, or for `auto` the format of the file's suffix; None if only the content decides."""
    if options.input_format != "auto":
        return get_format(options.input_format)
    stem = stem_of(path)
    return next((known for known in map(get_format, FORMATS) if known.suffixes and stem.endswith(known.suffixes)), None)


def split_file(path: str, size: int, options: ReadOptions, min_bytes: int = 0) -> list[tuple[str, int, int | None]]:
    """Return the splits (path, start, stop) of a file, for several workers to read with `read_file`.

    Only the name of the file counts. If a file cannot be read in ranges, all splits but the first are empty.

    Args:
        path: Path of the file.
        size: Its size in bytes, as stored.
        options: Options of reading.
        min_bytes: A file of up to this size is one range, for large inputs.
    """
    input_format = _format_by_name(path, options)
    if input_format and input_format.read_range:
        step = _by_suffix(input_format.range_bytes, path)
    elif input_format and not input_format.read_lines:
        step = 0
    else:
        step = _LINE_RANGE_BYTES.get(compression_of(path), 0)
    # Equal ranges: the local runner deals them to its workers in turn, and one would get all short rests of files.
    count = max(1, -(-size // max(step, min_bytes))) if step else 1
    starts = [size * number // count for number in range(count)]
    return [(path, start, stop) for start, stop in zip(starts, [*starts[1:], None], strict=True)]


def split_inputs(inputs: list[Input], options: ReadOptions) -> list[FileSplit]:
    """Return the splits of all files. A local file that cannot be read in ranges is one split."""
    min_bytes = sum(file.bytes for file in inputs) // _MAX_RANGES
    splits = []
    for file in inputs:
        ranges = split_file(file.path, file.bytes, options, min_bytes)
        if len(ranges) > 1 and "://" not in file.path:
            try:
                has_ranges = range_format(file.path, options) is not None
            except SourceError:
                # The job reads the file as a whole and reports the error.
                has_ranges = False
            ranges = ranges if has_ranges else [(file.path, 0, None)]
        splits += [FileSplit(file, start, stop) for _, start, stop in ranges]
    return splits


def _by_suffix(sizes: Mapping[str, int], path: str) -> int:
    """Return the size of the first suffix that a path has; 0 without one."""
    return next((size for suffix, size in sizes.items() if path.lower().endswith(suffix)), 0)


def _has_frames(path: str) -> bool:
    """Return whether lines can be read from any position: plain, or compressed with the second frame near its start."""
    codec = codec_of(path)
    if codec is None:
        return not compression_of(path)
    with open_stored(path, 2 * CHUNK_BYTES) as file:
        return find_frame(file, codec.magic, 1, MAX_FRAME_BYTES) is not None


def _range_reader(input_format: InputFormat, path: str) -> RangeReader | None:
    """Return the function that reads ranges of bytes of a file as stored, if the format has one for its suffix."""
    return input_format.read_range if _by_suffix(input_format.range_bytes, path) else None


def range_format(path: str, options: ReadOptions) -> InputFormat | None:
    """Return the format with which ranges of a file are read; None if the file is read as a whole.

    Raises:
        SourceError: The file cannot be opened, or is of a kind that is not text.
    """
    input_format = find_format(path, options)
    if _range_reader(input_format, path) or (input_format.read_lines and _has_frames(path)):
        return input_format
    return None


@contextmanager
def open_lines(path: str, encoding: str, start: int, stop: int | None) -> Iterator[Iterator[Line]]:
    """Open a file and return the lines of a range, then those after it.

    Args:
        path: A path on any Beam filesystem.
        encoding: Encoding of the file.
        start, stop: Byte range of the file as stored; None is the end of the file.

    Raises:
        SourceError: The file cannot be read, is corrupt, or is UTF-16 or UTF-32.
    """
    codec = codec_of(path)
    try:
        with open_stored(path, 2 * CHUNK_BYTES) as file:
            if codec is None:
                yield lines_of_chunks(plain_chunks(file, start, stop), path, encoding, start)
            else:
                frames = FrameReader(file, codec)
                yield lines_of_chunks(frames.chunks(start, stop), path, encoding, start, lambda: frames.frame)
    except FrameError as error:
        raise not_complete(path, error) from error


def read_file(
    path: str, options: ReadOptions, start: int = 0, stop: int | None = None, *, line_paragraphs: bool = False
) -> Iterator[Document]:
    """Read the documents of a file, or those that begin in one split from `split_file`.

    The documents of all splits, in order, are those of the complete file. Of several errors of a file, each split
    reports its own.

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
    is_range = start > 0 or stop is not None
    names = FORMATS if options.input_format == "auto" else [options.input_format]
    if is_range:
        input_format = range_format(path, options)
    elif any(_range_reader(get_format(name), path) for name in names):
        input_format = find_format(path, options)
    else:
        input_format = None
    if input_format and (read_range := _range_reader(input_format, path)):
        with open_stored(path, 2 * CHUNK_BYTES) as file:
            yield from read_range(file, path, options, start, stop)
    elif is_range and input_format and input_format.read_lines:
        with open_lines(path, options.encoding, start, stop) as lines:
            yield from input_format.read_lines(lines, path, options, start == 0)
    elif start == 0:
        nothing: io.BufferedReader = io.BufferedReader(io.BytesIO())
        with open_decompressed(path) if reads_files(options.input_format) else nullcontext(nothing) as stream:
            input_format = find_format(path, options, stream)
            if input_format is TEXT:
                yield from read_text(stream, path, options, line_paragraphs=line_paragraphs)
            else:
                yield from input_format.read_documents(stream, path, options)


def read_documents(file_split: FileSplit, options: ReadOptions, *, line_paragraphs: bool = False) -> Iterator[Document]:
    """Yield the documents of a split, and check that the file has not changed since the job started.

    Args:
        file_split: the split.
        options: options of reading.
        line_paragraphs: as of `read_file`.

    Raises:
        SourceError: the file cannot be read or has changed.
    """
    path, size, changed, origin, weight = file_split.input
    try:
        documents = read_file(path, options, file_split.start, file_split.stop, line_paragraphs=line_paragraphs)
        for document in documents:
            yield dataclasses.replace(document, origin=origin, weight=weight)
    except SourceError:
        # A file that is being written appears corrupt: report the change instead.
        _require_unchanged(path, size, changed, options)
        raise
    _require_unchanged(path, size, changed, options)


def _require_unchanged(path: str, size: int, changed: Any, options: ReadOptions) -> None:
    if reads_files(options.input_format):
        require_unchanged(path, size, changed)
