"""A MediaWiki dump (`pages-articles.xml`, plain or compressed) as its makers publish it: a document an article.

The XML is not parsed but scanned for `<page>` ... `</page>`: inside a page every `<` is escaped, so that the tags
cannot be confused with text, a reader may begin in the middle of a file, and entities that a document type declares
expand to nothing. A `.bz2` file is read by stream: a multistream dump holds one of 100 pages after the other, each
starting with the same ten bytes, so that several workers read one file without its index.
"""

import bz2
import codecs
import dataclasses
import functools
import html
import io
import logging
import lzma
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from pipelines.documents import Document
from pipelines.sources.files import ReadOptions, SourceError
from pipelines.sources.wiki_languages import disambiguation_templates
from pipelines.sources.wikitext import TooComplex, to_paragraphs

# Why a page is no document; counted in corpus.json, listed in rejected/*.jsonl.
NAMESPACE = "namespace"
REDIRECT = "redirect"
DISAMBIGUATION = "disambiguation"
NOT_WIKITEXT = "not_wikitext"
TOO_COMPLEX = "too_complex"
TRUNCATED = "truncated"

# Bytes of a part of a file; a stream of a multistream dump has about a quarter of a megabyte.
PART_BYTES = {".bz2": 2 << 20, ".xml": 16 << 20}

_CHUNK_BYTES = 256 << 10
_HEADER_BYTES = 64 << 10
# Read at once from a decompressor that, where its file is cut, keeps back what it has begun.
_DAMAGE_BYTES = 4 << 10
# A page has at most 2 MiB of text, and no character of it takes more than six bytes when escaped.
_MAX_PAGE_BYTES = 16 << 20

_OPEN, _CLOSE, _END_TAG = b"<page>", b"</page>", b"</mediawiki>"
# A stream with data starts with the first, one without with the second.
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_STREAM_BYTES = 10

_TITLE = re.compile(rb"<title>([^<]*)</title>")
_NAMESPACE_NUMBER = re.compile(rb"<ns>\s*(-?\d+)\s*</ns>")
_MODEL = re.compile(rb"<model>([^<]*)</model>")
_TEXT = re.compile(rb"<text\b[^<>]*(?<!/)>([^<]*)</text>")
_REDIRECT = re.compile(r"\s*+#\s?[^\W\d]++(?:\s*+:)?\s*+\[\[")
_NUMERIC_ENTITY = re.compile(r"&#(?:([0-9]{1,7})|[xX]([0-9a-fA-F]{1,6}));")
_LANGUAGE = re.compile(r"<mediawiki\b[^<>]*\bxml:lang=\"([^\"<>]+)\"")
_NAMESPACES = re.compile(r"<namespace\b[^<>]*\bkey=\"(-?\d+)\"[^<>]*>([^<]+)</namespace>")

_warn = logging.getLogger("beambert").warning

# Some bytes of the file and whether they belong to the part that is read; None instead of bytes: data is missing here.
Piece = tuple[bytes | None, bool]


@dataclasses.dataclass(frozen=True)
class Site:
    """What the head of a dump says about it.

    Attributes:
        language: of the edition, such as "en".
        prefixes: names of its namespaces but the main one, lower case.
        file_prefixes: those of files and categories.
        encoding: "utf-8", "utf-16-le" or "utf-16-be".
    """

    language: str
    prefixes: frozenset[str]
    file_prefixes: frozenset[str]
    encoding: str


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, b"<\0")):
        return "utf-16-le"
    return "utf-16-be" if head.startswith((codecs.BOM_UTF16_BE, b"\0<")) else "utf-8"


def is_dump(head: bytes) -> bool:
    """Whether a file that starts so is a MediaWiki dump."""
    text = head.decode(_encoding(head), "replace").lstrip("\ufeff \r\n\t")
    return text.startswith("<") and "<mediawiki" in text


def _site(head: bytes, path: str) -> Site:
    encoding = _encoding(head)
    text = head.decode(encoding, "replace")
    if "<mediawiki" not in text and "<page>" not in text:
        raise SourceError(f"{path} is no MediaWiki dump: no <mediawiki> at its start; name the correct --input_format")
    language = _LANGUAGE.search(text)
    names = {int(key): html.unescape(name).lower() for key, name in _NAMESPACES.findall(text)}
    return Site(
        language[1].lower() if language else "en",
        frozenset(name for key, name in names.items() if key),
        frozenset(names[key] for key in (6, 14) if key in names),
        encoding,
    )


def _unescape(text: str) -> str:
    """Undoes the five entities of XML and numeric ones, once; any other stays as it is."""
    if "&" not in text:
        return text
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&apos;", "'")
    if "&#" in text:
        text = _NUMERIC_ENTITY.sub(_numeric, text)
    return text.replace("&amp;", "&")


def _numeric(match: re.Match[str]) -> str:
    code = int(match[1]) if match[1] else int(match[2], 16)
    if code == ord("&"):
        return "&amp;"  # Undone with the others, so that &#38;lt; is &lt; and no bracket.
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


@functools.lru_cache(maxsize=64)
def _disambiguation(language: str) -> re.Pattern[str]:
    names = sorted(disambiguation_templates(language), key=lambda name: (-len(name), name))
    pattern = "|".join(re.escape(name).replace(r"\ ", "[ _]") for name in names)
    return re.compile(rf"\{{\{{\s*(?:{pattern})\s*[|}}]|__DISAMBIG__", re.IGNORECASE)


def _document(block: bytes, cut: str, site: Site, path: str) -> Document:
    """The document of `<page>` ...; `cut` is why the block is not whole, or ""."""
    title_match = _TITLE.search(block)
    title = _unescape(title_match[1].decode("utf-8", "replace")) if title_match else ""

    def rejected(reason: str) -> Document:
        return Document([], title, path, rejected=reason, language=site.language)

    if cut:
        return rejected(cut)
    number = _NAMESPACE_NUMBER.search(block)
    prefix, colon, _ = title.partition(":")
    # Dumps of before 2012 do not number the namespace.
    if int(number[1]) if number else colon and prefix.lower() in site.prefixes:
        return rejected(NAMESPACE)
    texts = _TEXT.findall(block)
    text = _unescape(texts[-1].decode("utf-8", "replace")) if texts else ""
    if b"<redirect" in block or _REDIRECT.match(text):
        return rejected(REDIRECT)
    model = _MODEL.search(block)
    if model and model[1] != b"wikitext":
        return rejected(NOT_WIKITEXT)
    if _disambiguation(site.language).search(text):
        return rejected(DISAMBIGUATION)
    try:
        paragraphs = to_paragraphs(text, title, site.language, site.file_prefixes)
    except TooComplex:
        return rejected(TOO_COMPLEX)
    return Document(paragraphs, title, path, language=site.language)


def _blocks(pieces: Iterator[Piece], path: str) -> Iterator[tuple[bytes, str]]:
    """Yields (a page's bytes from its `<page>` on, why it is not whole or "") for each page that begins in this part.

    Where data is missing between pages, (b"", TRUNCATED) says so.
    """
    buffer = b""
    tail = b""
    for piece, ours in pieces:
        if piece is None:
            yield (buffer if buffer.startswith(_OPEN) else b""), TRUNCATED
            buffer = tail = b""
            continue
        if not ours and not buffer:
            return
        buffer += piece
        # What is open from the part before may go on, nothing else.
        if not ours and not (buffer.startswith(_OPEN) or _OPEN.startswith(buffer)):
            return
        tail = (tail + piece)[-256:]
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
            if not ours:
                return
        if start >= 0:
            buffer = buffer[start:]
            if len(buffer) > _MAX_PAGE_BYTES:
                yield buffer[:_HEADER_BYTES], TOO_COMPLEX
                buffer = b""
        else:
            # A tag may be cut in two here.
            rest = buffer[max(position, len(buffer) - len(_OPEN) + 1) :]
            buffer = next((rest[at:] for at in range(len(rest)) if _OPEN.startswith(rest[at:])), b"")
    if tail and _END_TAG not in tail and not _END_TAG.endswith(tail.strip()):
        _warn("%s is cut short: no </mediawiki> at its end; read as far as it goes", path)
        yield (buffer if buffer.startswith(_OPEN) else b""), TRUNCATED


def _as_utf8(pieces: Iterator[Piece], encoding: str) -> Iterator[Piece]:
    if encoding == "utf-8":
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for piece, ours in pieces:
        yield (None if piece is None else decoder.decode(piece).encode("utf-8", "replace")), ours


def _documents(pieces: Iterator[Piece], site: Site, path: str) -> Iterator[Document]:
    for block, cut in _blocks(_as_utf8(pieces, site.encoding), path):
        yield _document(block, cut, site, path)


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:  # noqa: ARG001
    """Yields a document for each page of a decompressed dump; pages that are no articles are marked as rejected.

    What is cut short is read as far as it goes, with a warning.

    Raises:
        SourceError: not a dump.
    """
    head = b""
    while len(head) < _HEADER_BYTES and (data := stream.read1(_DAMAGE_BYTES)):
        head += data
    yield from _documents(_stream_pieces(stream, path, head), _site(head, path), path)


def _stream_pieces(stream: io.BufferedIOBase, path: str, head: bytes) -> Iterator[Piece]:
    gathered = bytearray(head)
    try:
        while data := stream.read1(_DAMAGE_BYTES):
            gathered += data
            if len(gathered) >= _CHUNK_BYTES:
                yield bytes(gathered), True
                gathered.clear()
    except (OSError, EOFError, lzma.LZMAError) as error:
        _warn("%s is not whole (%s); read as far as it goes", path, error)
    yield bytes(gathered), True


def can_split(path: str) -> bool:
    """Whether parts of the file can be read, by its name."""
    return path.lower().endswith(tuple(PART_BYTES))


def split(path: str, size: int) -> list[tuple[int, int | None]]:
    """Parts (start, stop) of a file of so many bytes, as `read_part` takes them; one where it cannot be split."""
    step = next((step for suffix, step in PART_BYTES.items() if path.lower().endswith(suffix)), 0)
    if not step:
        return [(0, None)]
    return [(start, start + step if start + step < size else None) for start in range(0, max(size, 1), step)]


def read_part(path: str, start: int = 0, stop: int | None = None) -> Iterator[Document]:
    """Yields the documents of the pages that begin in one part of a dump, `.bz2` or not compressed.

    Args:
        path: on any Beam filesystem.
        start, stop: bytes of the file as it is stored; None is its end. A page belongs to the part that holds its
            `<page>`; in a `.bz2` file, to the part that holds the start of that stream. Whatever the parts, each page
            is in one of them.

    Raises:
        SourceError: the file cannot be opened, or is no dump.
    """
    with _open(path) as file:
        site = _site(_head(file, path), path)
        if _is_bz2(path):
            yield from _documents(_bz2_pieces(file, path, start, stop), site, path)
        elif site.encoding == "utf-8" or not start:
            last = stop if site.encoding == "utf-8" else None
            yield from _documents(_plain_pieces(file, start, last), site, path)


def read_head(path: str) -> bytes:
    """The first bytes of a file that can be split, decompressed; enough for `is_dump`.

    Raises:
        SourceError: the file cannot be opened or decompressed.
    """
    with _open(path) as file:
        return _head(file, path)


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as opened:
            yield io.BufferedReader(opened, 2 * _CHUNK_BYTES)
    except (BeamIOError, OSError) as error:
        raise SourceError(
            f"{path} cannot be opened or read ({error}); check that it exists and that you may read it"
        ) from error


def _is_bz2(path: str) -> bool:
    return path.lower().endswith(".bz2")


def _head(file: BinaryIO, path: str) -> bytes:
    if not _is_bz2(path):
        return file.read(_HEADER_BYTES)
    decompressor = bz2.BZ2Decompressor()
    head = data = b""
    try:
        # The first stream of a multistream dump holds the head and nothing else.
        while len(head) < _HEADER_BYTES and (data := data or file.read(_CHUNK_BYTES)):
            head += decompressor.decompress(data, _HEADER_BYTES)
            data = b""
            if decompressor.eof:
                if is_dump(head):
                    break
                data, decompressor = decompressor.unused_data, bz2.BZ2Decompressor()
    except OSError as error:
        if not head:
            raise SourceError(
                f"{path} is not a whole .bz2 file ({error}); fetch it again or leave it out of --input"
            ) from error
    return head


def _plain_pieces(file: BinaryIO, start: int, stop: int | None) -> Iterator[Piece]:
    file.seek(start)
    left = stop - start if stop is not None else None
    while left is None or left > 0:
        data = file.read(_CHUNK_BYTES if left is None else min(_CHUNK_BYTES, left))
        if not data:
            return
        left = None if left is None else left - len(data)
        yield data, True
    while data := file.read(_CHUNK_BYTES):
        yield data, False


def _bz2_pieces(file: BinaryIO, path: str, start: int, stop: int | None) -> Iterator[Piece]:
    """The streams that begin in a part, then those after it, for a page that goes on there.

    Ten bytes that look like the start of a stream need not be one. A part whose search falls for such bytes fails to
    decompress them and searches on; the part that the true stream begins in never searches inside it.
    """
    position = _find_stream(file, start, stop)
    while position is not None:
        ours = stop is None or position < stop
        if not ours:
            yield b"", False
        decompressor = bz2.BZ2Decompressor()
        file.seek(position)
        end = position
        damage = ""
        while not (decompressor.eof or damage):
            data = file.read(_CHUNK_BYTES) if decompressor.needs_input else b""
            end += len(data)
            if not data and decompressor.needs_input:
                damage = "the file ends inside it"
                break
            try:
                piece = decompressor.decompress(data, 16 * _CHUNK_BYTES)
            except OSError as error:
                damage = str(error)
            else:
                yield piece, ours
        if damage:
            _warn("%s: the stream at byte %d is damaged (%s); read as far as it goes", path, position, damage)
            yield None, ours
            position = _find_stream(file, position + 1, stop)
            continue
        end -= len(decompressor.unused_data)
        file.seek(end)
        following = file.read(_STREAM_BYTES)
        if not following:
            return
        position = end
        if not _STREAM.match(following):
            _warn("%s: no bzip2 stream at byte %d, where the last one ends; read on from the next", path, end)
            yield None, ours
            position = _find_stream(file, end, stop)


def _find_stream(file: BinaryIO, start: int, stop: int | None) -> int | None:
    """The first place from `start` on and before `stop` where a stream seems to start."""
    file.seek(start)
    position, window = start, b""
    while (stop is None or position < stop) and (data := file.read(_CHUNK_BYTES)):
        window += data
        found = _STREAM.search(window)
        if found:
            place = position + found.start()
            return place if stop is None or place < stop else None
        keep = min(_STREAM_BYTES - 1, len(window))
        position += len(window) - keep
        window = window[len(window) - keep :]
    return None
