"""Read a MediaWiki dump as published (`pages-articles.xml`, plain or compressed), with one document per article.

The XML is not parsed but scanned for `<page>` ... `</page>`. Within a page every `<` is escaped, so that tags cannot be
confused with text. A reader can start in the middle of a file, and entities of a document type are not expanded.

A `.bz2` file is read stream by stream. A multistream dump has streams of 100 pages, each starting with the same ten
bytes, so several workers can read a file without its index.
"""

import contextlib
import dataclasses
import functools
import html
import io
import logging
import lzma
import re
from collections.abc import Iterator
from typing import BinaryIO

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import TRUNCATED
from beambert.pipelines.formats.frames import (
    CHUNK_BYTES,
    MAGIC_BYTES,
    compression_of,
    find_frame,
    plain_chunks,
    read_bz2,
    read_head,
)
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import start_of
from beambert.pipelines.formats.wikipedia.editions import disambiguation_templates
from beambert.pipelines.formats.wikipedia.wikiextractor_process import ExtractionFailed, open_wikiextractor
from beambert.pipelines.formats.wikipedia.wikitext import Extract, TooComplex, to_paragraphs

# Rules by which pages are rejected; counted in corpus.json and listed in rejected/*.jsonl.
NAMESPACE = "namespace"
REDIRECT = "redirect"
DISAMBIGUATION = "disambiguation"
NOT_WIKITEXT = "not_wikitext"
TOO_COMPLEX = "too_complex"
EXTRACTION_FAILED = "extraction_failed"

# The head of a dump is within this number of bytes.
HEADER_BYTES = 64 << 10
# A page has at most 2 MiB of text, and no character of it takes more than six bytes when escaped.
_MAX_PAGE_BYTES = 16 << 20

_OPEN, _CLOSE, _END_TAG = b"<page>", b"</page>", b"</mediawiki>"

_TITLE = re.compile(rb"<title>([^<]*)</title>")
_NAMESPACE_NUMBER = re.compile(rb"<ns>\s*(-?\d+)\s*</ns>")
_MODEL = re.compile(rb"<model>([^<]*)</model>")
_TEXT = re.compile(rb"<text\b[^<>]*(?<!/)>([^<]*)</text>")
_MAGIC_DISAMBIGUATION = re.compile("_(?i:_DISAMBIG__)")
_REDIRECT = re.compile(r"\s*+#\s?[^\W\d]++(?:\s*+:)?\s*+\[\[")
_NUMERIC_ENTITY = re.compile(r"&#(?:([0-9]{1,7})|[xX]([0-9a-fA-F]{1,6}));")
_LANGUAGE = re.compile(r"<mediawiki\b[^<>]*\bxml:lang=\"([^\"<>]+)\"")
_NAMESPACES = re.compile(r"<namespace\b[^<>]*\bkey=\"(-?\d+)\"[^<>]*>([^<]+)</namespace>")

# Read size for a decompressor, small because at a truncation it drops the data of the current read.
_SMALL_CHUNK_BYTES = 4 << 10
# The start of a stream with data, or of an empty stream.
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")

_warn = logging.getLogger("beambert").warning

# Bytes of the file, and whether they are in the split. None instead of bytes marks missing data.
Chunk = tuple[bytes | None, bool]


@dataclasses.dataclass(frozen=True)
class Site:
    """The fields of a dump's head.

    Attributes:
        language: Language code of the edition, such as "en".
        prefixes: Lowercase names of its namespaces except the main one.
        file_prefixes: Those of files and categories.
    """

    language: str
    prefixes: frozenset[str]
    file_prefixes: frozenset[str]


def is_dump(head: bytes) -> bool:
    """Return whether a file is a MediaWiki dump, by its first bytes."""
    return start_of(head).startswith(b"<") and b"<mediawiki" in head


def read_site(head: bytes, path: str) -> Site:
    """Parse the head of a dump.

    Raises:
        SourceError: It is not the head of a dump.
    """
    text = head.decode("utf-8", "replace")
    if "<mediawiki" not in text and "<page>" not in text:
        raise SourceError(
            f"{path} is not a MediaWiki dump: <mediawiki> is missing at its start; set the correct --input_format"
        )
    language = _LANGUAGE.search(text)
    names = {int(key): html.unescape(name).lower() for key, name in _NAMESPACES.findall(text)}
    return Site(
        language[1].lower() if language else "en",
        frozenset(name for key, name in names.items() if key),
        frozenset(names[key] for key in (6, 14) if key in names),
    )


def _unescape(text: str) -> str:
    """Decode the five XML entities and numeric ones once; other entities stay unchanged."""
    if "&" not in text:
        return text
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&apos;", "'")
    if "&#" in text:
        text = _NUMERIC_ENTITY.sub(_numeric, text)
    return text.replace("&amp;", "&")


def _numeric(match: re.Match[str]) -> str:
    code = int(match[1]) if match[1] else int(match[2], 16)
    if code == ord("&"):
        return "&amp;"  # Decoded last, so that &#38;lt; becomes &lt; rather than a bracket.
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


@functools.lru_cache(maxsize=64)
def _disambiguation(language: str) -> re.Pattern[str]:
    names = sorted(disambiguation_templates(language), key=lambda name: (-len(name), name))
    pattern = "|".join(re.escape(name).replace(r"\ ", "[ _]") for name in names)
    # Starts with a literal, which is found several times as fast as a class.
    return re.compile(rf"\{{(?=\{{)(?i:\{{\s*(?:{pattern})\s*[|}}])")


def _document(block: bytes, problem: str, site: Site, path: str, extract: Extract) -> Document:
    """Return the document of a block `<page>` ...; `problem` is the rule if the block is incomplete, or ""."""
    title_match = _TITLE.search(block)
    title = _unescape(title_match[1].decode("utf-8", "replace")) if title_match else ""

    def rejected(reason: str) -> Document:
        return Document(paragraphs=[], title=title, source=path, rejected=reason, language=site.language)

    if problem:
        return rejected(problem)
    number = _NAMESPACE_NUMBER.search(block)
    prefix, colon, _ = title.partition(":")
    # Dumps from before 2012 have no namespace number.
    if int(number[1]) if number else colon and prefix.lower() in site.prefixes:
        return rejected(NAMESPACE)
    texts = _TEXT.findall(block)
    text = _unescape(texts[-1].decode("utf-8", "replace")) if texts else ""
    if b"<redirect" in block or _REDIRECT.match(text):
        return rejected(REDIRECT)
    model = _MODEL.search(block)
    if model and model[1] != b"wikitext":
        return rejected(NOT_WIKITEXT)
    if _disambiguation(site.language).search(text) or _MAGIC_DISAMBIGUATION.search(text):
        return rejected(DISAMBIGUATION)
    try:
        paragraphs = extract(text, title, site.language, site.file_prefixes)
    except TooComplex:
        return rejected(TOO_COMPLEX)
    except ExtractionFailed as error:
        _warn("%s: the page %r cannot be extracted (%s)", path, title, error)
        return rejected(EXTRACTION_FAILED)
    return Document(paragraphs=paragraphs, title=title, source=path, language=site.language)


def _blocks(chunks: Iterator[Chunk], path: str) -> Iterator[tuple[bytes, str]]:
    """Yield (bytes from `<page>`, rule if incomplete or "") for each page that begins in the split.

    (b"", TRUNCATED) marks missing data between pages.
    """
    buffer = b""
    tail = b""
    for chunk, in_split in chunks:
        if chunk is None:
            yield (buffer if buffer.startswith(_OPEN) else b""), TRUNCATED
            buffer = tail = b""
            continue
        if not in_split and not buffer:
            return
        buffer += chunk
        # After the split, only an open page continues.
        if not in_split and not (buffer.startswith(_OPEN) or _OPEN.startswith(buffer)):
            return
        tail = (tail + chunk)[-256:]
        position = 0
        while (start := buffer.find(_OPEN, position)) >= 0:
            close = buffer.find(_CLOSE, start)
            again = buffer.find(_OPEN, start + 1, close if close >= 0 else len(buffer))
            if again >= 0:
                yield buffer[start:again], TRUNCATED
                position = again
            elif close >= 0:
                position = close + len(_CLOSE)
                yield buffer[start:position], ""
            else:
                break
            if not in_split:
                return
        if start >= 0:
            buffer = buffer[start:]
            if len(buffer) > _MAX_PAGE_BYTES:
                yield buffer[:HEADER_BYTES], TOO_COMPLEX
                buffer = b""
        else:
            # The end of the chunk may split a tag.
            rest = buffer[max(position, len(buffer) - len(_OPEN) + 1) :]
            buffer = next((rest[at:] for at in range(len(rest)) if _OPEN.startswith(rest[at:])), b"")
    if tail and _END_TAG not in tail and not _END_TAG.endswith(tail.strip()):
        _warn("%s is truncated: </mediawiki> is missing at its end; read up to there", path)
        yield (buffer if buffer.startswith(_OPEN) else b""), TRUNCATED


def read_pages(chunks: Iterator[Chunk], site: Site, path: str, extractor: str) -> Iterator[Document]:
    """Yield one document per page that begins in the split of the chunks.

    Args:
        chunks: Bytes of the file.
        site: The fields of the dump's head.
        path: Path of the file.
        extractor: A value of `ReadOptions.wikitext_extractor`.
    """
    opened = open_wikiextractor() if extractor == "wikiextractor" else contextlib.nullcontext(to_paragraphs)
    with opened as extract:
        for block, problem in _blocks(chunks, path):
            yield _document(block, problem, site, path, extract)


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per page of a decompressed dump; pages other than articles are rejected.

    A truncated dump is read up to its end, with a warning.

    Raises:
        SourceError: The stream is not a dump.
    """
    head = b""
    while len(head) < HEADER_BYTES and (data := stream.read1(_SMALL_CHUNK_BYTES)):
        head += data
    yield from read_pages(_stream_chunks(stream, path, head), read_site(head, path), path, options.wikitext_extractor)


def _stream_chunks(stream: io.BufferedIOBase, path: str, head: bytes) -> Iterator[Chunk]:
    gathered = bytearray(head)
    try:
        while data := stream.read1(_SMALL_CHUNK_BYTES):
            gathered += data
            if len(gathered) >= CHUNK_BYTES:
                yield bytes(gathered), True
                gathered.clear()
    except (OSError, EOFError, lzma.LZMAError) as error:
        _warn("%s is incomplete (%s); read up to there", path, error)
    yield bytes(gathered), True


def read_range(file: BinaryIO, path: str, options: ReadOptions, start: int, stop: int | None) -> Iterator[Document]:
    """Yield the documents of the pages that begin in a range of a dump, `.bz2` or uncompressed.

    Args:
        file: The file as stored.
        path: Its path.
        options: Options of reading.
        start, stop: Byte range of the file as stored; None is the end of the file. A page is in the range that contains
            its `<page>`, or in a `.bz2` file the start of its stream. Each page is in exactly one range, regardless of
            the sizes of the ranges.

    Raises:
        SourceError: The file is not a dump.
    """
    site = read_site(read_head(file, path, HEADER_BYTES, is_dump), path)
    is_compressed = compression_of(path) == ".bz2"
    chunks = _bz2_chunks(file, path, start, stop) if is_compressed else plain_chunks(file, start, stop)
    yield from read_pages(chunks, site, path, options.wikitext_extractor)


def _bz2_chunks(file: BinaryIO, path: str, start: int, stop: int | None) -> Iterator[Chunk]:
    """Yield the streams that begin in a split, then those after it, for a page that continues there.

    Ten bytes that look like the start of a stream may occur inside one. A split whose search finds such bytes fails to
    decompress them and continues the search. The split in which the true stream begins never searches inside it.
    """
    position = find_frame(file, _STREAM, start, stop)
    while position is not None:
        in_split = stop is None or position < stop
        if not in_split:
            yield b"", False
        file.seek(position)
        try:
            for chunk in read_bz2(file):
                yield chunk, in_split
        except (OSError, EOFError) as error:
            _warn("%s: the stream at byte %d is corrupt (%s); read up to there", path, position, error)
            yield None, in_split
            position = find_frame(file, _STREAM, position + 1, stop)
            continue
        position = file.tell()
        following = file.read(MAGIC_BYTES)
        if not following:
            return
        if not _STREAM.match(following):
            _warn("%s: the bzip2 stream expected at byte %d is missing; continued with the next stream", path, position)
            yield None, in_split
            position = find_frame(file, _STREAM, position, stop)


# A stream of a multistream dump has about 0.25 MB.
WIKIPEDIA = InputFormat(
    name="wikipedia",
    recognize=lambda _stem, head: is_dump(head),
    read=read_documents,
    read_range=read_range,
    range_bytes={".bz2": 2 << 20, ".xml": 16 << 20},
    suffixes=(".xml",),
    has_language=True,
    reports_other_kinds=True,
)
