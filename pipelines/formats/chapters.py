"""Split the lines of a book at the headings of its chapters, in English and German."""

import re

from beambert.pipelines.formats.wrapped_lines import blocks_of

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
