"""Hard-wrapped text, as in books and mails: blocks of lines to paragraphs."""

import itertools
import re
from collections.abc import Iterator

_ENDS_PHRASE = re.compile(r"""[.,;:!?\-—*)\]]["'»”’]*(?: *<\d+>)?$""")
_SUSPENDED = re.compile(r"(?:and|or|to|und|oder|als|bis|wie)\b")
# No book is wrapped narrower; shorter lines are ended by what they say.
_LEAST_WIDTH = 45


def blocks_of(lines: list[str]) -> Iterator[list[str]]:
    """Cut lines into blocks: a run of lines with text and the empty lines that follow it."""
    block: list[str] = []
    for line in lines:
        if line and block and not block[-1]:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def is_prose(block: list[str]) -> bool:
    """Return whether lines are hard-wrapped prose of five lines or more, rather than verse, a list or a heading."""
    lines = [line.strip() for line in block if line]
    return len(lines) >= 5 and _wrapped_share(lines) > 0.6


def _wrapped_share(lines: list[str]) -> float:
    """Return the share of line ends that wrapping explains: the next line's first word did not fit."""
    width = max(_LEAST_WIDTH, *map(len, lines))
    # A tenth of slack: books were wrapped by hand, or with blanks after a full stop that are gone.
    wrapped = sum(
        len(line) + 1 + len(following.split(" ", 1)[0]) > 0.9 * width for line, following in itertools.pairwise(lines)
    )
    return wrapped / max(1, len(lines) - 1)


def _split_by_indent(lines: list[str]) -> list[list[str]]:
    """Cut a block where its lines are indented like its first one, while others are not: speeches, paragraphs."""
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
    """Return both parts of a word that a line's end breaks at a hyphen, or None. Both lines are stripped."""
    if not line.endswith("-"):
        return None
    left = re.search(r"(?<!\w)(\w++)-$", line)
    right = re.match(r"\w+", following)
    return (left.group(1), right.group()) if left and right else None


class Joiner:
    """Join wrapped lines; a hyphen at a line's end stays or goes as the book itself writes the word elsewhere."""

    def __init__(self, lines: list[str]) -> None:
        stripped = [line.strip() for line in lines]
        broken = [parts for parts in map(_broken_word, stripped, stripped[1:]) if parts]
        self._words = set(re.findall(r"\w+(?:-\w+)*", " ".join(stripped))) if broken else set()
        with_hyphen = sum("-".join(parts) in self._words for parts in broken)
        self._hyphenates = sum("".join(parts) in self._words for parts in broken) > with_hyphen

    def join(self, lines: list[str]) -> str:
        """Join stripped lines to one paragraph, whitespace folded."""
        pieces = [lines[0]]
        for line, following in itertools.pairwise(lines):
            parts = _broken_word(line, following)
            if parts is None or _SUSPENDED.match(following):
                if not line.endswith(("--", "—")):
                    pieces.append(" ")
            elif self._drops_hyphen(*parts):
                pieces[-1] = pieces[-1][:-1]
            pieces.append(following)
        return " ".join("".join(pieces).split())

    def _drops_hyphen(self, left: str, right: str) -> bool:
        if not right[0].islower() or not left[-1].isalpha():
            return False
        if f"{left}-{right}" in self._words:
            return False
        return left + right in self._words or self._hyphenates


def join_paragraphs(lines: list[str], joiner: Joiner | None = None) -> list[str]:
    """Return the paragraphs of hard-wrapped lines.

    A block between empty lines is one paragraph; so is a stanza, so that its sentences stay whole. Lines that neither
    wrapping nor punctuation ties together (lists, the names of a play) stay paragraphs of their own. Lines indented
    like the first of their block begin a new one (speeches).
    """
    joiner = joiner or Joiner(lines)
    paragraphs: list[str] = []
    for block in blocks_of(lines):
        filled = [line for line in block if line]
        if not filled:
            continue
        for part in _split_by_indent(filled):
            stripped = [line.strip() for line in part]
            tied = sum(
                bool(_ENDS_PHRASE.search(line)) or following[0].islower()
                for line, following in itertools.pairwise(stripped)
            )
            if 2 * tied >= len(stripped) - 1 or _wrapped_share(stripped) > 0.5:
                paragraphs.append(joiner.join(stripped))
            else:
                paragraphs.extend(" ".join(line.split()) for line in stripped)
    return paragraphs
