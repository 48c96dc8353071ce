"""Read plain text of Project Gutenberg: remove license, credits and contents, and join lines.

It supports three layouts. The header of 1991-2003 ends with the "SMALL PRINT". The current layout has the text between
START and END lines. The transitional layout has the small print after the START line.
"""

import codecs
import io
import itertools
import re
from collections.abc import Iterator

from beambert.pipelines.documents import LICENSE, NOTES, Document, Removed
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.wrapped_lines import (
    Joiner,
    blocks_of,
    is_prose,
    join_paragraphs,
    split_by_indent,
)

_MODERN_START = re.compile(r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_MODERN_END = re.compile(r"\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_HEADER_END = re.compile(rf"\*END\*? ?THE SMALL PRINT|\*SMALL PRINT!.*\*END\*|{_MODERN_START.pattern}", re.IGNORECASE)
_HEADER_LINES = 60
_FOOTER = re.compile(rf"{_MODERN_END.pattern}|\*{{3,}}START\*\*.*SMALL PRINT", re.IGNORECASE)
# The last line of older books; if many lines follow, the file continues with another book.
_END_LINE = re.compile(r"(?:The )?(?:End of|Ende)\b.*\bProje[ck]t Gutenb[eu]rg", re.IGNORECASE)
_SHORT_REST_LINES = 15

_GUTENBERG = re.compile(r"proje[ck]t gutenb[eu]rg|gutenberg e-?(?:text|book)|gutenberg-tm", re.IGNORECASE)
_PRODUCERS_NOTE = r"(?:transcriber|scanner|redactor|preparer|producer|proofreader|executive director)'?s?'? notes?\b"
# Text that only the producers of the file write, matched before the start of the book.
_PRODUCTION = re.compile(
    r"proje[ck]t gutenb[eu]rg|gutenberg e-?text|[\w.]@[\w-]++\.\w|html version|\b[78] bit version"
    rf"|^\W*{_PRODUCERS_NOTE}",
    re.IGNORECASE,
)
# A note, and the heading of one of several paragraphs, which ends where lines are left empty.
_NOTE_START = re.compile(rf"[^\w\[(]*{_PRODUCERS_NOTE}(.*)", re.IGNORECASE)
_HEADING_CHARACTERS = 5
_MADE = r"(?:produced|prepared|transcribed|scanned|digiti[sz]ed|proofed|proofread|typed|converted)"
# Text of the producers, unless it is within a paragraph of the book.
_CREDIT = re.compile(rf"^\s*{_MADE}(?: \w+)* (?:by|for|from)\b", re.IGNORECASE)
_ETEXT = re.compile(r"\be-?(?:text|book)s?\b", re.IGNORECASE)
_PRODUCED = re.compile(rf"\b(?:{_MADE}|created|version|by:)", re.IGNORECASE)
# A run of carriage returns is matched only once, from its start, to keep matching linear.
_LINE_END = re.compile(r"(?<!\r)\r+\n|\r")
_MAIL = re.compile(r"\w\.*+@[\w-]++\.\w")
_NOTE = re.compile(r"(?:\d+\.\s*)?[\[(]?transcriber'?s?'? notes?\b", re.IGNORECASE)
_SIGNATURE = re.compile(r"[A-Z][a-z]+ [A-Z][a-z]+$")
_BY = re.compile(r"(?:by|von|(?:translated|edited|illustrated) by)\b.{0,60}$")
_TITLE_PAGE_BLOCKS = 8
_FRONT_LINES = 150
# The license of all layouts has fewer bytes; what else is removed with it is text of the book.
_LICENSE_BYTES = 25_000
_NOTE_LINES = 60
_CONTENTS = re.compile(
    r"\W*(?:table of )?contents\W*(?:of volume \w+\W*)?$|\W*inhalt(?:sverzeichnis)?\W*$", re.IGNORECASE
)
_CONTENTS_LINES = 600
_SENTENCE_END = re.compile(r"[.!?]_?[\"'»”’)\]]*$")
_SENTENCE_WORDS = 3
_WORD = re.compile(r"\w+")

# Insertions of the producers; a longer match would be text between two unrelated brackets.
_INSERTED = re.compile(
    r"[\[(]transcriber'?s?'?s? notes?\b[^\[\]()]{0,2000}(?:\([^()]{0,500}\)[^\[\]()]{0,2000}){0,20}[\])]"
    r"|(?<=[.!?] )transcriber'?s?'? note:.{0,2000}$"
    r"|\[illustration[^\[\]]{0,2000}\]|\[(?:page|pg|p\.) ?\d+\]",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"(?<!\w)_([^_]{1,500})_(?!\w)")

_TITLE = re.compile(
    r"gutenberg(?:['’]s)?(?: (?:e-?text(?:es)?|e-?book))?(?:[ ,]+of)?[ ,]+(?:the project gutenberg )?(.+)",
    re.IGNORECASE,
)

# Headings of chapters, in English and German.
_NUMBER = r"(?:[IVXLCDM]+|\d+|the \w+|one|two|three|four|five|six|seven|eight|nine|ten|first|second|third|last|eins?)"
_CHAPTER = re.compile(
    rf"""(?:(?:chapter|book|part|act|canto|letter|stave|volume|section|adventure|kapitel|buch|teil|akt|aufzug)
        \ +{_NUMBER}\b[.:]?.{{0,80}}
    |actus\ \w+.{{0,40}}
    |\w+(?:er|es|te|tes|ter)\ (?:kapitel|buch|teil|theil|akt|aufzug|abschnitt)\.?
    |(?:preface|introduction|prologue|epilogue|conclusion|vorwort|einleitung|nachwort)\.?
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
# I to CCCXCIX, alone or before a title in capitals; a single C or L is a letter rather than a number.
_ROMAN = re.compile(
    r"(?![CL]\b)(?=[CXLIV])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})"
    r"(?:\.|\.?:? *[-—.] *[^a-z]{1,60}|\. +[^a-z]{1,60})?$"
)
_CHAPTER_HEAD_LINES = 3
# A shorter chapter is a heading before another heading, or a line of the table of contents.
_MIN_CHAPTER_CHARACTERS = 500

# Lines that only the files of Project Gutenberg have.
_MARKER = re.compile(
    rb"""^[ \t*]*(?:\*{3}\ ?(?:START|END)\ OF\ (?:THE|THIS)\ PROJECT\ GUTENBERG
    |\*(?:END|START)?\*{0,2}\ ?(?:THE\ )?SMALL\ PRINT
    |WELCOME\ TO\ THE\ WORLD\ OF\ FREE\ PLAIN\ VANILLA)""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
# The first line of a book, such as "The Project Gutenberg EBook of Emma, by Jane Austen".
_FIRST_LINE = re.compile(
    rb"""\W*(?:(?:the|das|this\ is\ a\ copyrighted)\ )?proje[ck]t\ gutenb[eu]rg
    (?:'s\ |\xe2\x80\x99s\ |(?:'s)?\ e-?(?:text|book)|\ [^\r\n]{0,80},\ by\ )""",
    re.IGNORECASE | re.VERBOSE,
)
_FIRST_LINE_BYTES = 120
# The first line of a book after another one.
_NEXT_BOOK = re.compile(r"\W*(?:the )?proje[ck]t gutenb[eu]rg(?:['’]s |.{0,40} of )", re.IGNORECASE)


def is_gutenberg(head: bytes) -> bool:
    """Return whether a file is a book of Project Gutenberg, by its first few thousand bytes.

    A book has a line of its license, or begins with its title line. Text that only mentions Project Gutenberg has
    neither.
    """
    text = head.removeprefix(codecs.BOM_UTF8).replace(b"\r", b"\n").lstrip()
    first = text.partition(b"\n")[0].strip()
    return bool(_MARKER.search(text)) or (len(first) <= _FIRST_LINE_BYTES and bool(_FIRST_LINE.match(first)))


def decode(data: bytes, encoding: str) -> str:
    """Return the text of a book, decoded as UTF-8 if it is valid UTF-8, else with `encoding`, else with cp1252.

    cp1252 contains the letters of Latin-1, and the quotation marks and dashes that many "Latin-1" books use.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    for name in ("utf-8", encoding, "cp1252"):
        try:
            return data.decode(name)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


def split_lines(text: str) -> list[str]:
    """Return lines without line ends (LF, CRLF, CR or CR CR LF) and trailing blanks."""
    return [line.rstrip() for line in _LINE_END.sub("\n", text).expandtabs().split("\n")]


def find_title(lines: list[str]) -> str:
    """Return the title in the header of a book, or ""."""
    for line in lines[:60]:
        if line.startswith("Title: "):
            return line[7:].strip()
    for line, following in itertools.pairwise(lines[:20]):
        match = _TITLE.search(line)
        if match and "etails" not in line and not line.startswith("This "):
            # The plays of the First Folio have their title in a separate line of stars.
            name = following if re.match(r"\*+[^*]+\*+$", following) else match.group(1)
            return name.strip(" *").split(" by ")[0].strip(" ,*")
    return ""


def split_books(lines: list[str]) -> list[list[str]]:
    """Split a file with several concatenated books into its books.

    Without the markers of the current layout, another book begins where the last line of a book is followed by the
    first line and the end of a header. Without these, `strip_license` keeps the text after the end of a book.
    """
    books, first = [], 0
    end = header = None
    is_after_last_line = False
    for number, line in enumerate(lines):
        mark = line.lstrip()
        if _MODERN_END.match(mark):
            end = number
        elif end is not None and _MODERN_START.match(mark):
            books.append(lines[first : end + 1])
            # The license of the previous book is between the two markers, followed by the header of the next book.
            first, end = max(end + 1, number - _HEADER_LINES), None
            header, is_after_last_line = None, False
        elif _END_LINE.match(mark):
            header, is_after_last_line = None, True
        elif is_after_last_line and header is None and _NEXT_BOOK.match(mark):
            header = number
        elif header is not None and end is None and _HEADER_END.match(mark):
            books.append(lines[first:header])
            first, header, is_after_last_line = header, None, False
    return [*books, lines[first:]]


def license_bounds(lines: list[str]) -> tuple[int, int]:
    """Return the index of the first line after the header, 0 without a header, and that of the first of the footer."""
    start = 0
    for number, line in enumerate(lines):
        # The small print may be at the end of the file, after the text.
        if start and number > start + 400:
            break
        if _HEADER_END.match(line.lstrip()):
            start = number + 1
            while "START OF" in line and not line.endswith("***") and start < min(number + 4, len(lines)):
                line = lines[start]
                start += 1
        elif start and (_FOOTER.match(line.lstrip()) or _END_LINE.match(line.lstrip())):
            break
    if start and (
        not any(lines[start:]) or (_is_short(lines, start) and not any(map(_GUTENBERG.search, lines[:_HEADER_LINES])))
    ):
        # The end of a license that follows the book.
        lines, start = lines[: start - 1], 0
    for end in range(start, len(lines)):
        line = lines[end].lstrip()
        if _FOOTER.match(line) or (_END_LINE.match(line) and _is_short(lines, end + 1)):
            return start, end
    return start, len(lines)


def _is_short(lines: list[str], start: int) -> bool:
    """Return whether few lines follow, from `start` on, so that they are not a book."""
    rest = (line for line in itertools.islice(lines, start, None) if line)
    return len(list(itertools.islice(rest, _SHORT_REST_LINES + 1))) <= _SHORT_REST_LINES


def strip_license(lines: list[str], start: int, end: int) -> list[str]:
    """Return the lines of the book itself, without header, footer, credits and table of contents.

    A file without known markers keeps all lines, except the blocks that mention Project Gutenberg.

    Args:
        lines: lines of the file.
        start, end: its `license_bounds`.
    """
    header = " ".join(" ".join(lines[:start]).split()).casefold()
    body = lines[start:end]
    if start:
        body = _without_production_notes(body)
    body = _without_title_page(body, header)
    return _without_contents(_without_insertions(body))


def _gap_after(lines: list[str], number: int, limit: int) -> int | None:
    """Return the index of the first of two or more empty lines within `limit` lines from `number`, or None."""
    for index in range(number, min(number + limit, len(lines) - 1)):
        if not lines[index] and not lines[index + 1]:
            return index
    return len(lines) if number + limit >= len(lines) else None


def _words(text: str) -> str:
    """Return the words of a text in lower case, without punctuation."""
    return " ".join(_WORD.findall(text.casefold()))


def _is_sentence(line: str) -> bool:
    """Return whether a line ends a sentence, unlike a title, a name or an entry of a table of contents.

    Most words of a title begin with a capital.
    """
    if not _SENTENCE_END.search(line):
        return False
    words = line.split()[1:]
    lower = sum(word[0].islower() for word in words)
    return lower >= _SENTENCE_WORDS and lower > 2 / 3 * len(words)


def _production_lines(lines: list[str]) -> Iterator[int]:
    """Yield the indices of lines that only the producers of the file write."""
    number = 0
    for block in blocks_of(lines):
        is_text = is_prose(block)
        is_credit = not is_text and _CREDIT.search(block[0]) and not _is_sentence(" ".join(block).strip())
        names_production = not is_text and any(map(_PRODUCED.search, block))
        for index, line in enumerate(block):
            is_note = (is_credit and index == 0) or (names_production and _ETEXT.search(line))
            if is_note or _PRODUCTION.search(line):
                yield number + index
        number += len(block)


def _without_production_notes(lines: list[str]) -> list[str]:
    """Remove the producers' notes among the first lines, and the title page before them.

    A note after text of the book is left to `_without_insertions`. A note with a heading extends over empty lines, and
    another line of the producers soon after a note belongs to it.
    """
    start, last_note = 0, -_NOTE_LINES - 1
    for number in _production_lines(lines[: _FRONT_LINES + _NOTE_LINES]):
        if number >= _FRONT_LINES:
            break
        if number < start:
            continue
        first = next((index for index in range(number, start, -1) if not lines[index - 1]), start)
        is_in_note = number <= last_note + _NOTE_LINES
        if not is_in_note and _contains_text(lines[start:first]):
            break
        end = next((index for index in range(number, len(lines)) if not lines[index]), len(lines))
        gap = _gap_after(lines, number, _NOTE_LINES)
        note = _NOTE_START.match(lines[number])
        is_heading = note is not None and len(note[1]) <= _HEADING_CHARACTERS
        if not (is_in_note or is_heading) and gap is not None and _contains_text(lines[end:gap]):
            gap = end
        if note:
            last_note = number
        start = end if gap is None or gap == len(lines) else gap
    return lines[start:]


def _without_title_page(lines: list[str], header: str) -> list[str]:
    """Remove the first blocks if they repeat title and author of the header, or name the translator."""
    kept = [block for block in blocks_of(lines) if any(block)]
    signature = [line for line in kept[0] if line] if kept else []
    if (
        len(signature) == 1
        and _SIGNATURE.match(signature[0])
        and signature[0].casefold() not in header
        and not is_chapter_head(signature)
    ):
        del kept[0]
    words = f" {_words(header)} "
    for _ in range(_TITLE_PAGE_BLOCKS):
        if not header or not kept or is_chapter_head(kept[0]) or any(map(_is_sentence, kept[0])):
            break
        text = [_words(line) for line in kept[0]]
        if not all(_BY.match(line) or f" {line} " in words for line in text if line):
            break
        del kept[0]
    return [line for block in kept for line in block]


def _split_parts(block: list[str]) -> list[list[str]]:
    """Split a block at its indented paragraphs, since a book without empty lines is one block."""
    text = [line for line in block if line]
    if not text:
        return [block]
    *parts, last = split_by_indent(text)
    return [*parts, last + block[len(text) :]]


def _without_insertions(lines: list[str]) -> list[str]:
    """Remove transcribers' notes, and blocks that mention Project Gutenberg or contain a mail address."""
    text = "\n".join(lines).casefold()
    if not any(hint in text for hint in ("gutenb", "@", "transcriber")):
        return lines
    return [
        line
        for block in blocks_of(lines)
        for paragraph in _split_parts(block)
        if not any(_GUTENBERG.search(line) or ("@" in line and _MAIL.search(line)) for line in paragraph)
        and not _NOTE.match(paragraph[0].lstrip())
        for line in paragraph
    ]


def _without_contents(lines: list[str]) -> list[str]:
    """Remove the table of contents, from its heading to the first gap after its entries or to the first empty line.

    Prose is never removed.
    """
    for number, line in enumerate(lines[: 4 * _FRONT_LINES]):
        # The heading begins a block; a line of a paragraph may consist of the same word.
        if _CONTENTS.match(line) and not (number and lines[number - 1]):
            first = next((index for index in range(number + 1, len(lines)) if lines[index]), len(lines))
            empty = next((index for index in range(first, len(lines)) if not lines[index]), len(lines))
            for end in (_gap_after(lines, first, _CONTENTS_LINES), empty):
                if end is not None and end < len(lines) and not _contains_text(lines[first:end]):
                    return lines[:number] + lines[end:]
            return lines
    return lines


def _contains_text(lines: list[str]) -> bool:
    """Return whether lines contain prose or a sentence, rather than only entries of a table of contents."""
    return any(map(_is_sentence, lines)) or any(map(is_prose, blocks_of(lines)))


def is_chapter_head(block: list[str]) -> bool:
    """Return whether a block, with its empty lines, is the heading of a chapter, a book or an act."""
    lines = [line.strip() for line in block if line]
    if not 1 <= len(lines) <= _CHAPTER_HEAD_LINES:
        return False
    return bool(_CHAPTER.match(lines[0])) or bool(_ROMAN.match(lines[0]))


def split_chapters(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Split a book at its headings into (heading, lines with the heading).

    Text before the first heading has the heading "". A chapter with little text, such as a heading before another one,
    is joined to the next chapter; no line is lost.
    """
    chapters: list[tuple[str, list[str]]] = []
    heading = ""
    current: list[str] = []
    for block in blocks_of(lines):
        if is_chapter_head(block):
            if sum(map(len, current)) >= _MIN_CHAPTER_CHARACTERS:
                chapters.append((heading, current))
                current = []
            heading = " ".join(line.strip() for line in block if line)
        current.extend(block)
    if chapters and sum(map(len, current)) < _MIN_CHAPTER_CHARACTERS:
        chapters[-1][1].extend(current)
    elif current:
        chapters.append((heading, current))
    return chapters


def _clean(paragraph: str) -> str:
    """Remove producers' notes, illustration markers and emphasis underscores; return "" if no word remains."""
    cleaned = paragraph
    if "[" in cleaned or "ranscriber" in cleaned or "TRANSCRIBER" in cleaned:
        cleaned = _INSERTED.sub("", cleaned)
    if "_" in cleaned:
        cleaned = _EMPHASIS.sub(r"\1", cleaned)
    if cleaned != paragraph:
        cleaned = " ".join(cleaned.split())
        if re.fullmatch(r"\d+\W*", cleaned):
            return ""
    return cleaned if any(character.isalnum() for character in cleaned) else ""


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield each book of the file, or each chapter if `options.document_unit` is "chapter"."""
    for lines in split_books(split_lines(decode(stream.read(), options.encoding))):
        title = find_title(lines)
        start, end = license_bounds(lines)
        body = strip_license(lines, start, end)
        removed = _removed(lines, start, end, body)
        joiner = Joiner(body)
        chapters = split_chapters(body) if options.document_unit == "chapter" else []
        for heading, part in chapters or [("", body)]:
            name = f"{title}: {heading}" if title and heading else title or heading
            paragraphs = [cleaned for cleaned in map(_clean, join_paragraphs(part, joiner)) if cleaned]
            yield Document(paragraphs=paragraphs, title=name, source=path, removed=removed)
            removed = Removed()


def _removed(lines: list[str], start: int, end: int, body: list[str]) -> Removed:
    """Return the bytes that the reader removes: the license, and notes, title page and table of contents."""

    def size(part: list[str]) -> int:
        return sum(len(line.encode()) for line in part)

    text = size(lines[start:end])
    license_bytes = min(size(lines) - text, _LICENSE_BYTES)
    return Removed(lost={LICENSE: license_bytes, NOTES: size(lines) - license_bytes - size(body)})


GUTENBERG = InputFormat(name="gutenberg", read=read_documents, recognize=lambda _stem, head: is_gutenberg(head))
