"""Join the lines of hard-wrapped text, as in books and mails, to paragraphs."""

import itertools
import re
from collections.abc import Iterator

_ENDS_PHRASE = re.compile(r"""[.,;:!?\-—*)\]]["'»”’]*(?: *<\d+>)?$""")
_SUSPENDED = re.compile(r"(?:and|or|to|und|oder|als|bis|wie)\b")
# No book is wrapped narrower; shorter lines end for another reason than wrapping.
_MIN_WIDTH = 45


def blocks_of(lines: list[str]) -> Iterator[list[str]]:
    """Split lines into blocks: a run of lines with text, and the empty lines after it."""
    block: list[str] = []
    for line in lines:
        if line and block and not block[-1]:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def is_prose(block: list[str]) -> bool:
    """Return whether lines are hard-wrapped prose of at least five lines, rather than verse, a list or a heading."""
    lines = [line.strip() for line in block if line]
    return len(lines) >= 5 and _wrapped_fraction(lines) > 0.6


def _wrapped_fraction(lines: list[str]) -> float:
    """Return the fraction of line ends due to wrapping: the first word of the next line did not fit."""
    width = max(_MIN_WIDTH, *map(len, lines))
    # A tolerance of 10%: books were wrapped by hand, or had more spaces after a period.
    wrapped = sum(
        len(line) + 1 + len(following.split(" ", 1)[0]) > 0.9 * width for line, following in itertools.pairwise(lines)
    )
    return wrapped / max(1, len(lines) - 1)


def split_by_indent(lines: list[str]) -> list[list[str]]:
    """Split a block before the lines that are indented like its first one, if others are not: speeches, paragraphs."""
    indents = [len(line) - len(line.lstrip()) for line in lines]
    if indents[0] <= min(indents):
        return [lines]
    parts: list[list[str]] = []
    for line, indent in zip(lines, indents, strict=True):
        if indent == indents[0]:
            parts.append([])
        parts[-1].append(line)
    return parts


def _broken_word(line: str, following: str) -> tuple[str, str] | None:
    """Return both parts of a word that is hyphenated at the end of a line, or None. Both lines are stripped."""
    if not line.endswith("-"):
        return None
    left = re.search(r"(?<!\w)(\w++)-$", line)
    right = re.match(r"\w+", following)
    return (left.group(1), right.group()) if left and right else None


class Joiner:
    """Join wrapped lines; keep or drop a hyphen at the end of a line as the book writes the word elsewhere."""

    def __init__(self, lines: list[str]) -> None:
        stripped = [line.strip() for line in lines]
        broken = [parts for parts in map(_broken_word, stripped, stripped[1:]) if parts]
        self._words = set(re.findall(r"\w+(?:-\w+)*", " ".join(stripped))) if broken else set()
        with_hyphen = sum("-".join(parts) in self._words for parts in broken)
        self._hyphenates = sum("".join(parts) in self._words for parts in broken) > with_hyphen

    def join(self, lines: list[str]) -> str:
        """Join stripped lines to one paragraph, with whitespace normalized."""
        parts_joined = [lines[0]]
        for line, following in itertools.pairwise(lines):
            parts = _broken_word(line, following)
            if parts is None or _SUSPENDED.match(following):
                if not line.endswith(("--", "—")):
                    parts_joined.append(" ")
            elif self._drops_hyphen(*parts):
                parts_joined[-1] = parts_joined[-1][:-1]
            parts_joined.append(following)
        return " ".join("".join(parts_joined).split())

    def _drops_hyphen(self, left: str, right: str) -> bool:
        if not right[0].islower() or not left[-1].isalpha():
            return False
        if f"{left}-{right}" in self._words:
            return False
        return left + right in self._words or self._hyphenates


def join_paragraphs(lines: list[str], joiner: Joiner | None = None) -> list[str]:
    """Return the paragraphs of hard-wrapped lines.

    A block between empty lines is one paragraph, and so is a stanza, to keep its sentences complete. Lines without
    signs of wrapping and punctuation (lists, the cast of a play) are separate paragraphs. A line that is indented like
    the first one of its block begins a new paragraph (speeches).
    """
    joiner = joiner or Joiner(lines)
    paragraphs: list[str] = []
    for block in blocks_of(lines):
        filled = [line for line in block if line]
        if not filled:
            continue
        for part in split_by_indent(filled):
            stripped = [line.strip() for line in part]
            tied = sum(
                bool(_ENDS_PHRASE.search(line)) or following[0].islower()
                for line, following in itertools.pairwise(stripped)
            )
            if 2 * tied >= len(stripped) - 1 or _wrapped_fraction(stripped) > 0.5:
                paragraphs.append(joiner.join(stripped))
            else:
                paragraphs.extend(" ".join(line.split()) for line in stripped)
    return paragraphs
