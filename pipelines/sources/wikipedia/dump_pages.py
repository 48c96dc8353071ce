"""The pages of a MediaWiki dump as documents, from chunks of its XML.

The XML is not parsed but scanned for `<page>` ... `</page>`: inside a page every `<` is escaped, so that the tags
cannot be confused with text. A reader may begin in the middle of a file, and entities that a document type declares
expand to nothing.
"""

import codecs
import dataclasses
import functools
import html
import logging
import re
from collections.abc import Iterator

from pipelines.errors import SourceError
from pipelines.sources.documents import Document
from pipelines.sources.wikipedia.languages import disambiguation_templates
from pipelines.sources.wikipedia.wikitext import TooComplex, to_paragraphs

# Why a page is no document; counted in corpus.json, listed in rejected/*.jsonl.
NAMESPACE = "namespace"
REDIRECT = "redirect"
DISAMBIGUATION = "disambiguation"
NOT_WIKITEXT = "not_wikitext"
TOO_COMPLEX = "too_complex"
TRUNCATED = "truncated"

# Bytes of a file in which its head lies.
HEADER_BYTES = 64 << 10
# A page has at most 2 MiB of text, and no character of it takes more than six bytes when escaped.
_MAX_PAGE_BYTES = 16 << 20

_OPEN, _CLOSE, _END_TAG = b"<page>", b"</page>", b"</mediawiki>"

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
    """The fields of a dump's head.

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
    """Return whether a file that starts so is a MediaWiki dump."""
    text = head.decode(_encoding(head), "replace").lstrip("\ufeff \r\n\t")
    return text.startswith("<") and "<mediawiki" in text


def site_of(head: bytes, path: str) -> Site:
    """Return what the head of a dump says about it.

    Raises:
        SourceError: it is not the head of a dump.
    """
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
    """Undo the five entities of XML and numeric ones, once; any other stays as it is."""
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
    """Return the document of `<page>` ...; `cut` is why the block is incomplete, or ""."""
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
    """Yield (bytes from its `<page>` on, why it is incomplete or "") for each page that begins in this split.

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
        # What is open from the part before may continue, nothing else.
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
                yield buffer[:HEADER_BYTES], TOO_COMPLEX
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


def read_pages(pieces: Iterator[Piece], site: Site, path: str) -> Iterator[Document]:
    """Yield a document for each page that begins in the part of a dump that the chunks belong to."""
    for block, cut in _blocks(_as_utf8(pieces, site.encoding), path):
        yield _document(block, cut, site, path)
