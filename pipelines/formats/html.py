"""Read web pages: the main text of a page, its title, language, URL and date.

resiliparse parses the page and leaves out menus, forms, comments and other parts that are known from their elements and
class names (Bevendorff et al. 2018). The rules below then select blocks of text, such as paragraphs and headings. They
use the density of links and the ends of sentences, as jusText does (Pomikalek 2011). docs/benchmarks/web-pages.md
compares the result with that of other libraries.
"""

import html
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beambert.pipelines.documents import Document
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import start_of

# Rules by which pages are rejected; counted in corpus.json and listed in rejected/*.jsonl.
NOT_HTML = "not_html"
PAGE_TOO_LARGE = "page_too_large"
PAGE_TOO_COMPLEX = "page_too_complex"

MAX_PAGE_BYTES = 8 << 20
# As Chromium limits it (`kMaximumHTMLParserDOMTreeDepth`). The time of the extraction is quadratic in the depth.
_MAX_DEPTH = 512
_IS_TOO_DEEP = ">".join("*" * (_MAX_DEPTH + 1))
# Limits of what the parser gets, because its time is quadratic in the attributes of a tag and in some open elements.
_MAX_OPEN_TAGS = 20_000
# An attribute as the HTML standard tokenizes it (section 13.2.5.32 to 13.2.5.39).
_ATTRIBUTE = rb"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+"""
_TAG_WITH_ATTRIBUTES = re.compile(rb"<[a-zA-Z][^\s/>]*+(?:%b){0,4999}+(%b)?+" % (_ATTRIBUTE, _ATTRIBUTE))
_CODE = re.compile(rb"<(?:!--|script\b)")
# The search takes as long as the extraction. In a page below the first size without a text of the second size between
# two `>`, the attributes take a few seconds at most.
_MANY_ATTRIBUTES_BYTES = 256 << 10
_LONG_TAG_BYTES = 20_000

# Parts that resiliparse keeps. The elements that a page consists of may have classes such as "cookies-accepted".
_SKIPPED_CLASSES = ("caption", "newsletter", "cookie")
_SKIPPED = [
    "header",
    "footer",
    *(f'[class*="{name}" i]:not(html):not(body):not(main):not(article)' for name in _SKIPPED_CLASSES),
]
# A shorter text is extracted again with fewer rules.
_MIN_CHARACTERS = 100
# Maximum fraction of the characters of a block that are in links, and minimum fraction of the text in tagged blocks
# for which text outside of paragraphs and headings is left out.
_MAX_LINKED = 0.5
_MIN_TAGGED = 0.9
# Length of a sentence that may begin or end a text, in UTF-8, in which a Chinese character counts as much as a
# syllable. If the text between such sentences is less than half of all blocks, the page is not one of prose.
_MIN_SENTENCE_BYTES = 15
_MIN_PROSE = 0.5

_PAGE_START = re.compile(
    rb"(?:<\?xml\b[^<>]*\?>\s*|<!--(?:[^-]|-(?!->))*+-->\s*)*"
    # The second tag distinguishes a web page from a sentence such as "<html> is the root element".
    rb"<(?:!doctype\s+html\b[^<>]*|(?:html|head|body)(?:\s[^<>]*)?)>\s*<",
    re.IGNORECASE | re.DOTALL,
)
# Bytes that only binary files have in their first 1,445 bytes (MIME Sniffing standard, sections 3 and 7.2). A page
# may have one by mistake, so it is binary only if no tag is there.
_SNIFFED_BYTES = 1445
_BINARY_BYTE = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_PAGE_TAG = re.compile(rb"<(?:!doctype|html|head|body|title|meta|div)\b", re.IGNORECASE)
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SUFFIXES = (".html", ".htm", ".xhtml")
_OPEN_TAG = re.compile(rb"<(/?)([a-zA-Z]+)")
# Elements without content, in HTML and in drawings, and those that the next element of their kind closes.
_UNCLOSED = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd option optgroup tr td th thead "
    b"tbody tfoot colgroup rt rp path circle ellipse line polygon polyline rect stop use".split()
)
_LINK = re.compile(r'<a href="[^"]*">')
_TAG = re.compile(r"</?[a-z][^<>]*>")
_FIRST_TAG = re.compile(r"<(p|pre|h[1-6]|ul|ol|li|blockquote)>")
_SENTENCE_END = re.compile(r"""[.!?…。！？؟।:;]["'”’»)\]]*$""")
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]+)*$")
_CANONICAL_URL = 'link[rel="canonical"]'
_PUBLISHED = 'meta[property="article:published_time"]'


class Page(NamedTuple):
    """The content of a web page.

    Attributes:
        paragraphs: Its main text.
        title: Its title, or "".
        language: Language code that it states, without a region, or "".
        metadata: `url` (its canonical URL) and `published` (a date as written), if it states them.
        rejected: Rule by which it is not read, or "".
    """

    paragraphs: list[str]
    title: str = ""
    language: str = ""
    metadata: Mapping[str, str] = {}
    rejected: str = ""


class _Block(NamedTuple):
    tag: str
    text: str
    linked_characters: int


def read_page(data: bytes | str, charset: str = "") -> Page:
    """Return the content of a web page. Time and memory are bounded for any input.

    Args:
        data: The page, as bytes or decoded. Of a longer page, `MAX_PAGE_BYTES` + 1 bytes suffice.
        charset: Encoding that the server states, or "".
    """
    from resiliparse.parse.html import HTMLTree

    size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "surrogatepass"))
    if isinstance(data, bytes) and not charset.lower().startswith("utf-16") and _is_binary(data):
        return Page([], rejected=NOT_HTML)
    if size > MAX_PAGE_BYTES:
        return Page([], rejected=PAGE_TOO_LARGE)
    text = decode(data, charset) if isinstance(data, bytes) else data
    if _is_costly(text.encode("utf-8", "replace")):
        return Page([], rejected=PAGE_TOO_COMPLEX)
    tree = HTMLTree.parse(text)
    document = tree.document
    if document is None or document.query_selector(_IS_TOO_DEEP) is not None:
        return Page([], rejected=PAGE_TOO_COMPLEX)
    language = _LANGUAGE.match(_attribute(document, "html", "lang"))
    stated = {"url": (_CANONICAL_URL, "href"), "published": (_PUBLISHED, "content")}
    metadata = {name: _attribute(tree.head, *place) for name, place in stated.items()}
    return Page(
        _paragraphs(tree),
        title=" ".join((tree.title or "").split()),
        language=language[1].lower() if language else "",
        metadata={name: value for name, value in metadata.items() if value},
    )


def _is_binary(data: bytes) -> bool:
    """Return whether a file is an image, an archive or other binary data, regardless of its name and media type."""
    start = data[:_SNIFFED_BYTES]
    return not start.startswith(_UTF16_MARKS) and bool(_BINARY_BYTE.search(start)) and not _PAGE_TAG.search(start)


def _attribute(node: Any, selector: str, name: str) -> str:
    """Return an attribute of the first element below a node that a CSS selector matches, or ""."""
    element = node.query_selector(selector) if node else None
    return ((element.getattr(name) or "") if element else "").strip()


def decode(data: bytes, charset: str) -> str:
    """Return a page as text.

    A page that is valid UTF-8 is UTF-8, also if it states another encoding, since other encodings with letters outside
    of ASCII hardly ever form valid UTF-8. Otherwise, the encoding is that of a byte order mark, of the server, of the
    page, or else detected. If most characters are invalid in it, it is detected too.
    """
    from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

    if data.startswith(_UTF16_MARKS):
        return data.decode("utf-16", "replace")
    # ISO-2022-JP consists of ASCII and escape sequences.
    if b"\x1b$" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    encoding = map_encoding_to_html5(charset, False) if charset else None
    text = data.decode(encoding or detect_encoding(data, from_html_meta=True) or "utf-8", "replace")
    special = len(text) - len(text.encode("ascii", "ignore"))
    return text if text.count("\ufffd") <= special / 2 else data.decode(detect_encoding(data) or "utf-8", "replace")


def _is_costly(data: bytes) -> bool:
    """Return whether a page has a tag with thousands of attributes or thousands of open elements, before parsing."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(">"))
    is_suspicious = np.diff(ends, prepend=0, append=len(data)).max() > _LONG_TAG_BYTES
    if (is_suspicious or len(data) > _MANY_ATTRIBUTES_BYTES) and _has_many_attributes(data):
        return True
    return data.count(b"<") > _MAX_OPEN_TAGS and _open_tags(data) > _MAX_OPEN_TAGS


def _has_many_attributes(data: bytes) -> bool:
    """Return whether a tag has 5,000 attributes. Tags do not overlap, so that the time is linear."""
    return any(tag[1] for tag in _TAG_WITH_ATTRIBUTES.finditer(_without_code(data)))


def _without_code(data: bytes) -> bytes:
    """Return a page without the content of comments and scripts, where `<` begins no tag."""
    lower, kept, end = data.lower(), [], 0
    while end >= 0 and (start := _CODE.search(lower, end)):
        kept.append(data[end : start.start()])
        end = lower.find(b"-->" if start[0] == b"<!--" else b"</script", start.end())
    return b"".join([*kept, data[end:] if end >= 0 else b""])


def _open_tags(data: bytes) -> int:
    """Return the maximum number of open elements, without those that need no end tag."""
    depth = deepest = 0
    for end, name in _OPEN_TAG.findall(data):
        if name.lower() not in _UNCLOSED:
            depth += -1 if end else 1
            deepest = max(deepest, depth)
    return deepest


def _paragraphs(tree: Any) -> list[str]:
    """Return the paragraphs of the main text, or of the whole page if that is too short."""
    attempts: tuple[dict[str, Any], ...] = (
        {"main_content": True, "comments": False, "skip_elements": _SKIPPED},
        {"main_content": True},
        {"main_content": False},
    )
    for options in attempts:
        paragraphs = select_text(_blocks(tree, **options))
        if sum(map(len, paragraphs)) >= _MIN_CHARACTERS:
            break
    return paragraphs


def _blocks(tree: Any, **options: Any) -> list[_Block]:
    from resiliparse.extract.html2text import extract_plain_text

    text = extract_plain_text(
        tree, preserve_formatting="minimal_html", links=True, alt_texts=False, list_bullets=False, **options
    )
    blocks = []
    for block in text.split("\n\n"):
        tag = _FIRST_TAG.match(block.lstrip())
        linked = sum(len(_TAG.sub("", part.partition("</a>")[0]).strip()) for part in _LINK.split(block)[1:])
        if content := html.unescape(_TAG.sub("", block)).strip():
            blocks.append(_Block(tag[1] if tag else "", content, linked))
    return blocks


def select_text(blocks: Sequence[_Block]) -> list[str]:
    """Return the lines of the blocks that are main text, not menus, captions or lists of links.

    1. Blocks mostly of links are left out.
    2. The text begins after the first main heading, if most of the text is there.
    3. If nearly all text is in paragraphs and headings, text outside of them, such as names of authors, is left out.
    4. The text begins with the first sentence, and ends with the last one and the paragraphs directly after it,
       unless most of the text is elsewhere.
    """
    blocks = [block for block in blocks if block.linked_characters <= _MAX_LINKED * len(block.text)]
    heading = next((number for number, block in enumerate(blocks) if block.tag == "h1"), None)
    if heading is not None and _size(blocks[heading:]) > _size(blocks) / 2:
        blocks = blocks[heading + 1 :]
    tagged = [block for block in blocks if block.tag]
    if _size(tagged) >= _MIN_TAGGED * _size(blocks):
        blocks = tagged
    sentences = [number for number, block in enumerate(blocks) if _is_sentence(block)]
    if sentences:
        end = sentences[-1] + 1
        while end < len(blocks) and blocks[end].tag and not blocks[end].tag.startswith("h"):
            end += 1
        prose = blocks[sentences[0] : end]
        if _size(prose) >= _MIN_PROSE * _size(blocks):
            blocks = prose
    return [line.strip() for block in blocks for line in block.text.splitlines() if line.strip()]


def _size(blocks: Sequence[_Block]) -> int:
    return sum(len(block.text) for block in blocks)


def _is_sentence(block: _Block) -> bool:
    if block.tag.startswith("h") or len(block.text.encode("utf-8")) < _MIN_SENTENCE_BYTES:
        return False
    return bool(_SENTENCE_END.search(block.text))


def is_page(name: str, head: bytes) -> bool:
    """Return whether a file is a web page, by its lowercase name without a compression suffix and its first bytes."""
    return name.endswith(_SUFFIXES) or bool(_PAGE_START.match(start_of(head)))


def page_document(page: Page, path: str, metadata: Mapping[str, str]) -> Document:
    """Return the document of a page.

    Args:
        page: The page.
        path: Path of its file.
        metadata: What is known about it from elsewhere, which precedes what it states.
    """
    return Document(
        paragraphs=page.paragraphs,
        title=page.title,
        source=path,
        rejected=page.rejected,
        language=page.language,
        metadata={**page.metadata, **metadata},
    )


def read(stream: io.BufferedIOBase, path: str, _: ReadOptions) -> Iterator[Document]:
    """Yield the one document of a file with a web page."""
    yield page_document(read_page(stream.read(MAX_PAGE_BYTES + 1)), path, {})


HTML = InputFormat(
    name="html",
    read=read,
    recognize=is_page,
    has_language=True,
    reports_other_kinds=True,  # Mirrors of sites have images and archives under names of pages.
    package="resiliparse",
)
