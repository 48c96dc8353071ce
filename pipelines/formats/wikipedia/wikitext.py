"""Convert wikitext to the paragraphs of prose that readers see.

It makes three passes over a page, each linear in the length of the page. The first pass processes tags (comments,
references, formulas). The second one resolves brackets (templates, links and tables) from the inside out on an explicit
stack. The third one processes lines (headings, lists, quotes, entities). No pass recurses or backtracks, so no page can
block it. `TooComplex` rejects pages that MediaWiki does not display either.
"""

import html
import re
from collections.abc import Callable

from beambert.pipelines.formats.wikipedia.editions import unwanted_prefixes, unwanted_sections
from beambert.pipelines.formats.wikipedia.templates import template_text

# MediaWiki saves no page of more than 2 MiB and expands no template below this depth.
MAX_CHARACTERS = 2 << 20
MAX_NESTING = 100

# Noncharacters replace markup that is meant as text; the last pass restores it.
_MARKUP = "[]{}|=<>'*#:_\n"
_PROTECT = {ord(character): 0xFDD0 + index for index, character in enumerate(_MARKUP)}
_RESTORE = {code: (" " if character == ord("\n") else character) for character, code in _PROTECT.items()}
_PIPE_AND_EQUALS = {ord("|"): _PROTECT[ord("|")], ord("="): _PROTECT[ord("=")]}
_HAS_PROTECTED = re.compile("[\ufdd0-\ufdef]")
_PREFORMATTED = "\ufdef"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The content of these tags is not wikitext or not prose.
_OPAQUE = _words(
    """
    ref references math chem ce gallery timeline imagemap score source syntaxhighlight graph mapframe maplink
    pre templatestyles templatedata hiero inputbox categorytree indicator section includeonly
    """
)
_BLOCKS = _words("p div blockquote center hr h1 h2 h3 h4 h5 h6 ul ol li dl dd dt tr td th poem")
_INLINE = _words(
    """
    b i u s em strong small big sub sup span font tt code var samp kbd cite abbr q del ins strike ruby rb rt
    rp bdi bdo dfn mark time data nowiki noinclude onlyinclude wbr caption tbody thead tfoot col colgroup rtc
    label langconvert
    """
)
_TAG = re.compile(r"<!--|<(/?)([a-zA-Z][a-zA-Z0-9]*)(?=[\s/>])([^<>]*)>")
_COMMENT_END = re.compile("-->")

# A link or template without brackets inside, or a single bracket.
_BRACKET = re.compile(
    r"\[\[[^\[\]{}\n]*\]\]|\{\{(?!\{)[^\[\]{}]*\}\}(?!\})"
    r"|\{\{+|\}\}+|\[\[|\]\]|\n[ \t:*#]*(?:\{\||\|\}(?!\}(?!\})))"
)
_INDENTED = re.compile(r"\n +(?=\S)")

_EXTERNAL_LINK = re.compile(r"\[(?:(?:https?|ftp|ftps|irc|news|gopher|sftp):|mailto:|//)[^\s\[\]]*+([^\[\]\n]*+)\]")
_MAGIC_WORD = re.compile(r"__[^\Wa-z_][^\Wa-z]{1,40}__")
_LANGUAGE_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_HEADING = re.compile(r"(={1,6})(.+?)(={1,6})\s*$")
_QUOTES = re.compile(r"'{2,}")
# The end of a sentence, optionally followed by quotes and brackets.
_SENTENCE_END = re.compile(r"[.!?…。！？:：][\"'”’»)\]）」』]*$")
_WORD = re.compile(r"[^\W_]")

_OPENED = re.compile(r"([(（])[\s;,]+")
_CLOSED = re.compile(r"(?<![\s;,])[\s;,]+([)）])")
_EMPTY = re.compile(r"(?<!\S)(?:\(\)|（）|\[\])|（）")
# Start with a literal, which is found several times as fast as a class.
_SEPARATOR_AFTER = re.compile(r"\((?=[\s;,)])")
_SEPARATOR_BEFORE = re.compile(r"\)(?<=[\s;,]\))")
_STRAY_BLANK = re.compile(r" ([,.])(?=\s|$)")

# The type of `to_paragraphs` and of other extractors.
Extract = Callable[[str, str, str, frozenset[str]], list[str]]


class TooComplex(Exception):
    """A page exceeds the limits of size or nesting."""


def to_paragraphs(
    wikitext: str, title: str = "", language: str = "en", file_prefixes: frozenset[str] = frozenset()
) -> list[str]:
    """Return the prose of a page, one string per paragraph, with normalized whitespace.

    It keeps paragraphs, indented lines with sentence-ending punctuation, quotations, and the text of inline templates.
    It removes headings, list items, tables, infoboxes, references, formulas, file captions, preformatted text, and
    sections of links and sources. BERT's own Wikipedia text had no lists, tables and headers either (Devlin et al.
    2018, section 3.1).

    Args:
        wikitext: Source of the page.
        title: Title of the page.
        language: Language code of the edition, such as "en".
        file_prefixes: Further lowercase namespace names of files and categories.

    Raises:
        TooComplex: The page has more than MAX_CHARACTERS, or brackets nested deeper than MAX_NESTING.
    """
    if len(wikitext) > MAX_CHARACTERS:
        raise TooComplex(f"{len(wikitext)} characters")
    text = _without_tags("\n" + wikitext)
    text = _Brackets(title, language, unwanted_prefixes(language) | file_prefixes).resolve(text)
    if "-{" in text:
        text = _LANGUAGE_VARIANT.sub(_language_variant, text)
    if "__" in text:
        text = _MAGIC_WORD.sub("", text)
    return _paragraphs(text, unwanted_sections(language))


def _without_tags(text: str) -> str:
    """Remove comments, tags, and the content of opaque tags; convert HTML tables to wikitext tables.

    A blank at the start of a line marks preformatted text only if the line of the source starts with it. Blanks that
    begin a line because the tags before them are removed are removed too.
    """
    if "<" not in text:
        return text
    parts: list[str] = []

    def add(part: str) -> None:
        if parts and parts[-1].endswith("\n"):
            part = part.lstrip(" ")
        if part:
            parts.append(part)

    position = 0
    unclosed: set[str] = set()  # Tags without a further end tag, to search for it only once.

    def end_of(name: str, start: int) -> re.Match[str] | None:
        pattern = _COMMENT_END if name == "!--" else re.compile(rf"</{name}\s*>", re.IGNORECASE)
        match = None if name in unclosed else pattern.search(text, start)
        if match is None:
            unclosed.add(name)
        return match

    while match := _TAG.search(text, position):
        add(text[position : match.start()])
        position = match.end()
        if match[2] is None:
            end = end_of("!--", position)
            position = end.end() if end else len(text)
            continue
        name = match[2].lower()
        opening = not match[1] and not match[3].endswith("/")
        if name == "table":
            add("\n{|" if opening else "\n|}\n")
        elif name in _OPAQUE or (name == "nowiki" and opening):
            end = end_of(name, position) if opening else None
            if end:
                if name == "nowiki" or "inline" in match[3]:
                    add(text[position : end.start()].translate(_PROTECT))
                position = end.end()
        elif name in _BLOCKS:
            add("\n")
        elif name == "br":
            add(" ")
        elif name not in _INLINE:
            add(match[0])
    add(text[position:])
    return "".join(parts)


class _Brackets:
    """Resolve {{templates}}, [[links]] and {| tables |} from the inside out.

    An open bracket is a frame: [kind, number of braces, text so far]. The text of a closed bracket is added to the
    enclosing frame. A bracket that never closes becomes plain text, as in MediaWiki.
    """

    def __init__(self, title: str, language: str, prefixes: frozenset[str]) -> None:
        self._title = title
        self._language = language
        self._prefixes = prefixes

    def resolve(self, text: str) -> str:
        """Return the text with all closed brackets resolved."""
        page: list[str] = []
        self._frames: list[tuple[str, int, list[str]]] = [("", 0, page)]
        position = 0
        for match in _BRACKET.finditer(text):
            start, bracket = match.start(), match[0]
            if start > position:
                self._add_source(text[position:start])
            position = match.end()
            if bracket[0] == "[" and bracket[-1] == "]":
                self._require_depth()
                self._add_resolved(self._link(bracket[2:-2]))
            elif bracket[0] == "{" and bracket[-1] == "}":
                self._require_depth()
                self._add_resolved(template_text(bracket[2:-2], self._title, self._language))
            elif bracket[0] == "{":
                self._open("{", len(bracket))
            elif bracket == "[[":
                self._open("[", 2)
            elif bracket[0] == "}":
                self._close_braces(len(bracket))
            elif bracket == "]]":
                if self._frames[-1][0] == "[":
                    _, _, parts = self._frames.pop()
                    self._add_resolved(self._link("".join(parts)))
            elif bracket.endswith("{|"):
                self._open("|", 1)
            else:
                self._close_table()
        self._add_source(text[position:])
        while len(self._frames) > 1:
            self._abandon()
        return "".join(page)

    def _require_depth(self, count: int = 0) -> None:
        """Raise TooComplex if a bracket, of `count` braces, is nested too deep."""
        if len(self._frames) > MAX_NESTING or count > MAX_NESTING:
            raise TooComplex(f"nested deeper than {MAX_NESTING}")

    def _open(self, kind: str, count: int) -> None:
        self._require_depth(count)
        self._frames.append((kind, count, []))

    def _add_source(self, text: str) -> None:
        parts = self._frames[-1][2]
        if len(self._frames) == 1 and "\n " in text:
            text = _INDENTED.sub("\n" + _PREFORMATTED, text)
        parts.append(text)

    def _add_resolved(self, text: str) -> None:
        """Add text of a template or link, and protect its bars and equals signs from the enclosing template."""
        if text:
            inside = len(self._frames) > 1 and ("|" in text or "=" in text)
            self._frames[-1][2].append(text.translate(_PIPE_AND_EQUALS) if inside else text)

    def _abandon(self) -> None:
        """Add the text of an unclosed bracket to the enclosing frame; an unclosed table ends at the next heading."""
        kind, _, parts = self._frames.pop()
        text = "".join(parts)
        if kind == "|":
            heading = text.find("\n=")
            text = text[heading:] if heading >= 0 else ""
        self._frames[-1][2].append(text)

    def _close_braces(self, count: int) -> None:
        while count >= 2:
            if not any(frame[0] == "{" for frame in reversed(self._frames)):
                return
            while self._frames[-1][0] != "{":
                self._abandon()
            _, opened, parts = self._frames.pop()
            taken = min(opened, count, 3)
            content = "".join(parts)
            default = content.partition("|")[2]
            text = default if taken == 3 else template_text(content, self._title, self._language)
            count -= taken
            opened -= taken
            if opened >= 2:
                self._frames.append(("{", opened, []))
            self._add_resolved(text)

    def _close_table(self) -> None:
        for index in range(len(self._frames) - 1, 0, -1):
            kind = self._frames[index][0]
            if kind == "{":
                break
            if kind == "|":
                del self._frames[index:]
                self._add_resolved("\n")
                return
        self._add_source("\n")

    def _link(self, content: str) -> str:
        target, bar, label = content.partition("|")
        if "\n" in target or "[" in target:
            return f"{target} {label}" if bar else target
        prefix, colon, _ = target.partition(":")
        if colon:
            if not prefix.strip():
                target = target.lstrip(" :")
            elif prefix.strip().lower().replace("_", " ") in self._prefixes:
                return ""
        return label if bar and label.strip() else target


def _language_variant(match: re.Match[str]) -> str:
    """Return the first variant of -{zh-hans:A;zh-hant:B}-, or "" for control codes such as -{T|...}-."""
    flag, bar, rest = match[1].partition("|")
    if bar and any(letter in flag for letter in "THD-"):
        return ""
    body = rest if bar else match[1]
    first = body.partition(";")[0]
    code, colon, value = first.partition(":")
    return value.strip() if colon and re.fullmatch(r"\s*[a-z-]{2,10}\s*", code) else body


def _without_quotes(line: str) -> str:
    """Remove bold and italic marks, and keep apostrophes by MediaWiki's rule for unpaired marks."""
    marks = [(match.start(), match.end() - match.start()) for match in _QUOTES.finditer(line)]
    # Four are an apostrophe and a bold mark; more than five are apostrophes and a bold italic mark.
    sizes = [3 if size == 4 else min(size, 5) for _, size in marks]
    odd = sum(size in (3, 5) for size in sizes) % 2 and sum(size in (2, 5) for size in sizes) % 2
    if odd:
        bold = [number for number, size in enumerate(sizes) if size == 3]
        for number in bold:
            # l'''Iliade'': an apostrophe before italics, most likely after a single letter.
            before = line[max(0, marks[number][0] - 2) : marks[number][0]]
            if before[-1:].strip() and not before[:-1].strip():
                break
        else:
            number = bold[0] if bold else -1
        if number >= 0:
            sizes[number] = 2
    parts = []
    position = 0
    for (start, size), mark in zip(marks, sizes, strict=True):
        parts.append(line[position:start] + "'" * (size - mark))
        position = start + size
    return "".join(parts) + line[position:]


def _may_have_rest(paragraph: str) -> bool:
    """Return whether a text may have an empty bracket, or separators next to one."""
    if "[]" in paragraph or "）" in paragraph:
        return True
    return (_SEPARATOR_AFTER.search(paragraph) or _SEPARATOR_BEFORE.search(paragraph)) is not None


def _finish(paragraph: str) -> str:
    """Decode entities, normalize whitespace, and remove brackets and blanks that removed markup leaves."""
    if "[" in paragraph:
        paragraph = _EXTERNAL_LINK.sub(r"\1", paragraph)
    if "&" in paragraph:
        paragraph = html.unescape(paragraph)
    paragraph = " ".join(paragraph.split())
    if "（" in paragraph or ("(" in paragraph and _may_have_rest(paragraph)):
        paragraph = _EMPTY.sub("", _CLOSED.sub(r"\1", _OPENED.sub(r"\1", paragraph)))
    if not paragraph.isascii() and _HAS_PROTECTED.search(paragraph):
        paragraph = paragraph.translate(_RESTORE)
    return " ".join(_STRAY_BLANK.sub(r"\1", paragraph).split())


def _paragraphs(text: str, unwanted: frozenset[str]) -> list[str]:
    paragraphs: list[str] = []
    lines: list[str] = []
    skipping = 0  # Heading level of the section to skip, or 0.

    def end_paragraph() -> None:
        if lines:
            paragraph = _finish(" ".join(lines))
            if _WORD.search(paragraph):
                paragraphs.append(paragraph)
            lines.clear()

    for line in text.split("\n"):
        first = line[:1]
        if first == "=" and (heading := _HEADING.match(line)):
            end_paragraph()
            level = min(len(heading[1]), len(heading[3]))
            if not skipping or level <= skipping:
                name = html.unescape(heading[2].strip("= \t").replace("'''", "").replace("''", ""))
                skipping = level if name.strip().lower() in unwanted else 0
            continue
        if skipping:
            continue
        if not line.strip() or first in "*#;|!" + _PREFORMATTED or line.startswith("----"):
            end_paragraph()
            continue
        if "''" in line:
            line = _without_quotes(line)
        if first == ":":
            end_paragraph()
            line = line.lstrip(": ")
            if line[:1] not in "*#;|{" and _SENTENCE_END.search(line.rstrip()):
                lines.append(line)
                end_paragraph()
            continue
        lines.append(line)
    end_paragraph()
    return paragraphs
