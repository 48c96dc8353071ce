"""Convert the pages of a MediaWiki dump to documents, from chunks of its XML.

The XML is not parsed but scanned for `<page>` ... `</page>`. Within a page every `<` is escaped, so that tags cannot be
confused with text. A reader can start in the middle of a file, and entities of a document type are not expanded.
"""

import dataclasses
import functools
import html
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import TRUNCATED
from beambert.pipelines.formats.lines import start_of
from beambert.pipelines.formats.wikipedia.languages import disambiguation_templates
from beambert.pipelines.formats.wikipedia.wikiextractor_process import ExtractionFailed, WikiExtractorProcess
from beambert.pipelines.formats.wikipedia.wikitext import TooComplex, to_paragraphs

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
_REDIRECT = re.compile(r"\s*+#\s?[^\W\d]++(?:\s*+:)?\s*+\[\[")
_NUMERIC_ENTITY = re.compile(r"&#(?:([0-9]{1,7})|[xX]([0-9a-fA-F]{1,6}));")
_LANGUAGE = re.compile(r"<mediawiki\b[^<>]*\bxml:lang=\"([^\"<>]+)\"")
_NAMESPACES = re.compile(r"<namespace\b[^<>]*\bkey=\"(-?\d+)\"[^<>]*>([^<]+)</namespace>")

_warn = logging.getLogger("beambert").warning

# Bytes of the file, and whether they are in the split. None instead of bytes marks missing data.
Chunk = tuple[bytes | None, bool]
# From wikitext, title, language and file prefixes to paragraphs, as `wikitext.to_paragraphs`.
Extract = Callable[[str, str, str, frozenset[str]], list[str]]


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
    return re.compile(rf"\{{\{{\s*(?:{pattern})\s*[|}}]|__DISAMBIG__", re.IGNORECASE)


@contextmanager
def _open_extractor(name: str) -> Iterator[Extract]:
    """Yield the function of an extractor, a value of `ReadOptions.wikitext_extractor`."""
    if name == "wikiextractor":
        with WikiExtractorProcess() as process:
            yield process.to_paragraphs
    else:
        yield to_paragraphs


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
    if _disambiguation(site.language).search(text):
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
    with _open_extractor(extractor) as extract:
        for block, problem in _blocks(chunks, path):
            yield _document(block, problem, site, path, extract)
