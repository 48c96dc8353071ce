"""Tags of words and the entities that they stand for, in every common scheme.

| scheme | one word | first | inner | last |
|---|---|---|---|---|
| iob1 | I | I | I | I, and B for the first word of an entity right after another of the same type |
| iob2 (also BIO) | B | B | I | I |
| iobes (also BIOES) | S | B | I | E |
| bilou | U | B | I | L |
| bmes | S | B | M | E |
| io | the bare type, of every word |

A tag is "O", or a letter, a hyphen and the type, such as "B-PER"; the letter alone is an entity without a type.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

OUTSIDE = "O"


class Letters(NamedTuple):
    """The first letters of a scheme's tags: of an entity's only, first, inner and last word."""

    single: str
    first: str
    inner: str
    last: str


SCHEMES = {
    "iob1": Letters("I", "I", "I", "I"),
    "iob2": Letters("B", "B", "I", "I"),
    "iobes": Letters("S", "B", "I", "E"),
    "bilou": Letters("U", "B", "I", "L"),
    "bmes": Letters("S", "B", "M", "E"),
    "io": Letters("", "", "", ""),
}
IOB1, IO = "iob1", "io"
DEFAULT_SCHEME = "iob2"
# Letters that mean the same.
_MEANING = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


class Entities(NamedTuple):
    """Entities in the order of the text, which do not overlap. E entities.

    Attributes:
        starts: int64 [E], number of the first word.
        ends: int64 [E], number of the word after the last.
        types: str [E].
    """

    starts: np.ndarray
    ends: np.ndarray
    types: np.ndarray


def parse(tag: str, scheme: str | None = None) -> tuple[str, str] | None:
    """Return letter and type of a tag.

    Args:
        tag: not "O".
        scheme: only its letters are letters; None for those of all schemes but io.

    Returns:
        The letter, "I" for a bare type, and the type, "" if there is none; None if this is no tag.
    """
    if scheme == IO:
        return ("I", tag) if tag else None
    letter, hyphen, kind = tag.partition("-")
    known = _MEANING if scheme is None else {"B", "I"} if scheme == IOB1 else set(SCHEMES[scheme])
    return (letter, kind) if letter in known and bool(kind) == bool(hyphen) else None


def first_unknown(tags: Sequence[str], scheme: str | None = None) -> int | None:
    """Return the place of the first tag outside a scheme, or outside any but io; None if all belong."""
    unknown = {tag for tag in set(tags) if tag != OUTSIDE and parse(tag, scheme) is None}
    return next((place for place, tag in enumerate(tags) if tag in unknown), None) if unknown else None


def entities_of(tags: Sequence[str], sentence_splits: np.ndarray, scheme: str | None = None) -> Entities:
    """Return the entities of tags in any scheme, also where the tags break its rules.

    An entity begins at a word whose tag is a first or only one, or which follows no word of the same type that may go
    on; it ends before the next beginning, before "O" and with the sentence. So read conlleval, the script of the
    shared tasks, and seqeval (when it is not asked to be strict).

    Args:
        tags: W, all of them "O" or valid for `parse`.
        sentence_splits: int64 [N + 1], of words.
        scheme: "io" for bare types; no other makes a difference.
    """
    distinct = dict.fromkeys(tags)
    kinds: dict[str, int] = {}
    # Of each distinct tag: letter, number of the type; -1 for the type of "O".
    letters, numbers = np.full(len(distinct), OUTSIDE), np.full(len(distinct), -1)
    for place, tag in enumerate(distinct):
        distinct[tag] = place
        if tag != OUTSIDE:
            parsed = parse(tag, scheme)
            if parsed is None:
                raise ValueError(f"{tag!r} is no tag")
            letters[place] = _MEANING[parsed[0]]
            numbers[place] = kinds.setdefault(parsed[1], len(kinds))
    codes = np.fromiter((distinct[tag] for tag in tags), np.int64, len(tags))
    letter, number = letters[codes], numbers[codes]  # [W]
    before_letter, before_number = np.roll(letter, 1), np.roll(number, 1)
    goes_on = ((letter == "I") | (letter == "E")) & ((before_letter == "B") | (before_letter == "I"))
    goes_on &= number == before_number
    goes_on[sentence_splits[:-1][sentence_splits[:-1] < len(tags)]] = False
    inside = number >= 0
    begins = inside & ~goes_on
    ends = inside & ~np.append(goes_on[1:], False)[: len(tags)]
    starts = np.flatnonzero(begins)
    names = np.array([*kinds, ""])
    return Entities(starts, np.flatnonzero(ends) + 1, names[number[starts]])


def tags_of(entities: Entities, words: int, scheme: str) -> list[str]:
    """Return the tags that a scheme has for entities.

    Neighbors of the same type become one in io, which cannot separate them.

    Args:
        entities: within `words` words.
        words: W.
        scheme: of `SCHEMES`.
    """
    letters = SCHEMES[scheme]
    tags = [OUTSIDE] * words
    last_end, last_kind = -1, ""
    for start, end, kind in zip(*(values.tolist() for values in entities), strict=True):
        first = letters.first if end > start + 1 else letters.single
        if scheme == IOB1 and start == last_end and kind == last_kind:
            first = "B"
        tags[start] = _tag(first, kind)
        if end > start + 1:
            tags[start + 1 : end - 1] = [_tag(letters.inner, kind)] * (end - start - 2)
            tags[end - 1] = _tag(letters.last, kind)
        last_end, last_kind = end, kind
    return tags


def labels_of(kinds: Iterable[str], scheme: str) -> tuple[str, ...]:
    """Return every tag of a scheme for these types: "O", then those of each type in alphabetical order."""
    letters = ("B", "I") if scheme == IOB1 else tuple(dict.fromkeys(SCHEMES[scheme]))
    return (OUTSIDE, *(_tag(letter, kind) for kind in sorted(kinds) for letter in letters))


def detect(tags: Sequence[str], sentence_splits: np.ndarray) -> str | None:
    """Return the scheme that tags are written in; None if no entity shows it.

    Args:
        tags: W, all of them "O" or valid for `parse`.
        sentence_splits: int64 [N + 1], of words.
    """
    letters = {parsed[0] for tag in set(tags) if tag != OUTSIDE and (parsed := parse(tag))}
    if not letters:
        return None
    for scheme, its_letters in (("bilou", "LU"), ("bmes", "M"), ("iobes", "ES")):
        if letters.intersection(its_letters):
            return scheme
    entities = entities_of(tags, sentence_splits)
    # Where few tags break the rules of one of them, they are mistakes.
    broken = {
        scheme: sum(tag != wanted for tag, wanted in zip(tags, tags_of(entities, len(tags), scheme), strict=True))
        for scheme in (DEFAULT_SCHEME, IOB1)
    }
    return min(broken, key=lambda scheme: broken[scheme])


def scheme_of_labels(labels: Sequence[str]) -> str | None:
    """Return the scheme that the classes of a model are tags of, None if they are not tags."""
    if OUTSIDE not in labels:
        return None
    parsed = [parse(label) for label in labels if label != OUTSIDE]
    if parsed and all(pair is None for pair in parsed):
        return IO
    letters: dict[str, set[str]] = {}
    for pair in parsed:
        if pair is None:
            return None
        letters.setdefault(pair[1], set()).add(pair[0])
    every = set().union(*letters.values()) if letters else set()
    for scheme, its_letters in (("bilou", "LU"), ("bmes", "M"), ("iobes", "ES")):
        if every.intersection(its_letters):
            return scheme
    return IOB1 if any(own == {"I"} for own in letters.values()) else DEFAULT_SCHEME


def _tag(letter: str, kind: str) -> str:
    return f"{letter}-{kind}" if letter and kind else letter or kind
