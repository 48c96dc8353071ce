"""Define an input format, and the options of reading."""

import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.lines import Line, lines_of_stream

DEFAULT_TEXT_FIELD = "text"
# Values of --on_bad_record.
BAD_RECORD_ACTIONS = ("stop", "skip")
# Values of --wikitext_extractor.
WIKITEXT_EXTRACTORS = ("beambert", "wikiextractor")


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options of reading.

    Attributes:
        input_format: Name of a format in `beambert.pipelines.formats.FORMATS`; "auto" recognizes each file from its
            content.
        encoding: Encoding of text files, an extension of ASCII.
        text_field: Field or column with the text.
        document_unit: Document of a Gutenberg book, "book" or "chapter".
        id_field: Field or column with the user's document ID, or "".
        on_bad_record: Action for a record that cannot be read or has no text, one of `BAD_RECORD_ACTIONS`.
        language_field: Field or column with the language code; "" for "language", if the field exists.
        wikitext_extractor: Extractor of the pages of a Wikipedia dump, one of `WIKITEXT_EXTRACTORS`.
    """

    input_format: str = "auto"
    encoding: str = "utf-8"
    text_field: str = DEFAULT_TEXT_FIELD
    document_unit: str = "book"
    id_field: str = ""
    on_bad_record: str = "stop"
    language_field: str = ""
    wikitext_extractor: str = "beambert"

    def __post_init__(self) -> None:
        try:
            ascii_compatible = "\n{<".encode(self.encoding) == b"\n{<"
        except (LookupError, ValueError):
            ascii_compatible = False
        if not ascii_compatible:
            raise SourceError(
                f"invalid --encoding {self.encoding}: unknown, or not an extension of ASCII; convert the files first: "
                f"iconv -f {self.encoding} -t utf-8 FILE"
            )


# From the decompressed bytes of a file, its path and the options to its documents, including rejected ones.
Reader = Callable[[io.BufferedReader, str, ReadOptions], Iterator[Document]]
# From the lines of a range and those after it, the path, the options, and whether the range is the start of the file
# to the documents that begin in the range.
LineReader = Callable[[Iterable[Line], str, ReadOptions, bool], Iterator[Document]]
# From a file as stored, its path, the options and a byte range to the documents that begin in the range.
RangeReader = Callable[[BinaryIO, str, ReadOptions, int, int | None], Iterator[Document]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFormat:
    """An input format.

    Several workers read ranges of a file: of lines, if the format has `read_lines`, or of bytes, if it has
    `read_range`. Other files are read as a whole, with `read`.

    Attributes:
        name: Value of --input_format.
        recognize: Returns whether `--input_format auto` reads a file in this format, by its lowercase name without a
            compression suffix and its first decompressed bytes. None: never.
        read: Reads a complete file; None if `read_lines` does.
        read_lines: Reads the documents that begin in a range of lines.
        read_range: Reads the documents that begin in a range of bytes, in files with a suffix in `range_bytes`.
        range_bytes: Size of a range by suffix of the file.
        suffixes: Suffixes of files in this format, so that a file of many ranges is divided before it is opened.
        has_fields: Whether documents are records with fields, from which --text_field selects.
        has_language: Whether documents may state their language.
        layout: Returns another format with which a file is read, by its first bytes, for a format with two layouts.
        reports_other_kinds: Whether the reader itself reports a file of another kind, such as an archive.
        reads_files: Whether the format has files; False for text that every Python includes.
    """

    name: str
    recognize: Callable[[str, bytes], bool] | None = None
    read: Reader | None = None
    read_lines: LineReader | None = None
    read_range: RangeReader | None = None
    range_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    suffixes: tuple[str, ...] = ()
    has_fields: bool = False
    has_language: bool = False
    layout: Callable[[bytes], "InputFormat | None"] | None = None
    reports_other_kinds: bool = False
    reads_files: bool = True

    def read_documents(self, stream: io.BufferedReader, path: str, options: ReadOptions) -> Iterator[Document]:
        """Return the documents of a complete file, from its decompressed bytes."""
        if self.read_lines:
            return self.read_lines(lines_of_stream(stream, path, options.encoding), path, options, True)
        assert self.read is not None
        return self.read(stream, path, options)
