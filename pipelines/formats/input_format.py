"""Define an input format, and the options of reading."""

import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, BinaryIO, Literal

from beambert.common.command_line.options import Flag, check
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.lines import Line, lines_of_stream


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options of reading; the help of the flags has these descriptions.

    Attributes:
        input_format: Input format: auto, text or html (one document per file), sentences (one sentence per line, an
            empty line between documents), bookcorpus, gutenberg, jsonl, json, csv, tsv, parquet, wikiextractor,
            wikipedia, warc, wet or language_reference; see docs/reference/input-formats.md.
        encoding: Encoding of text files; Gutenberg books that are not valid UTF-8 are read as cp1252.
        text_field: JSON field, or Parquet, CSV or TSV column, with the text or the list of its sentences (default:
            text).
        html_field: JSON field, or Parquet, CSV or TSV column, with HTML pages, whose main text is extracted; instead of
            --text_field (requires the extra [web]).
        keep_fields: Names of fields or columns to keep as metadata of the documents, separated by commas, such as
            url,date (default: none).
        id_field: Field or column with the document ID, recorded as source_id of rejected documents (default: none).
        on_bad_record: Action for a record that cannot be read or has no text: stop the job, or skip the record and list
            it with the rejected documents, with file, line and reason.
        document_unit: Document unit of Gutenberg books; chapters are recognized by English and German headings.
        language_field: JSON field, or Parquet, CSV or TSV column, with the language code of a document, for example en
            (default: language, if the field exists).
        wikitext_extractor: Extractor of the pages of Wikipedia dumps: beambert's own, or the package wikiextractor
            3.1.0 (requires the extra [wikiextractor]; license AGPL-3.0).

    Raises:
        SourceError: a value is invalid.
    """

    input_format: Annotated[str, Flag("input", metavar="FORMAT")] = "auto"
    encoding: Annotated[str, Flag("input", metavar="NAME")] = "utf-8"
    text_field: Annotated[str, Flag("input", metavar="NAME", default=None)] = "text"
    html_field: Annotated[str, Flag("input", metavar="NAME")] = ""
    keep_fields: Annotated[str, Flag("input", metavar="NAME,NAME")] = ""
    id_field: Annotated[str, Flag("input", metavar="NAME")] = ""
    on_bad_record: Annotated[Literal["stop", "skip"], Flag("input")] = "stop"
    document_unit: Annotated[Literal["book", "chapter"], Flag("input")] = "book"
    language_field: Annotated[str, Flag("input", metavar="NAME")] = ""
    wikitext_extractor: Annotated[Literal["beambert", "wikiextractor"], Flag("input")] = "beambert"

    def __post_init__(self) -> None:
        check(self, SourceError)
        if self.html_field and self.text_field != "text":
            raise SourceError("--text_field and --html_field name the same content; leave one of them out")
        try:
            ascii_compatible = "\n{<".encode(self.encoding) == b"\n{<"
        except (LookupError, ValueError):
            ascii_compatible = False
        if not ascii_compatible:
            raise SourceError(
                f"invalid --encoding {self.encoding}: unknown, or not an extension of ASCII; convert the files first: "
                f"iconv -f {self.encoding} -t utf-8 FILE"
            )

    @property
    def kept_fields(self) -> list[str]:
        """Return the names of `keep_fields`."""
        return [name.strip() for name in self.keep_fields.split(",") if name.strip()]

    @property
    def content_field(self) -> str:
        """Return the name of the field with the text or the HTML page."""
        return self.html_field or self.text_field


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
            compression suffix and its first decompressed bytes. None: by `suffixes`.
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
        package: Package of an extra that reading requires, or "".
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
    package: str = ""

    def recognizes(self, stem: str, head: bytes) -> bool:
        """Return whether `--input_format auto` reads a file in this format; see `recognize`."""
        return self.recognize(stem, head) if self.recognize else stem.endswith(self.suffixes)

    def read_documents(self, stream: io.BufferedReader, path: str, options: ReadOptions) -> Iterator[Document]:
        """Return the documents of a complete file, from its decompressed bytes."""
        if self.read_lines:
            return self.read_lines(lines_of_stream(stream, path, options.encoding), path, options, True)
        assert self.read is not None
        return self.read(stream, path, options)
