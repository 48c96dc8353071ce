"""Convert word tags to entities and back, in the common tag schemes, and score entities as conlleval and seqeval do.

| scheme | one word | first | inner | last |
|---|---|---|---|---|
| iob1 | I | I | I | I, and B for the first word of an entity directly after another of the same type |
| iob2 (also BIO) | B | B | I | I |
| iobes (also BIOES) | S | B | I | E |
| bilou | U | B | I | L |
| bmes | S | B | M | E |
| io | the bare type, of every word |

A tag is "O", or a letter, a hyphen and the type, such as "B-PER"; the letter alone is an entity without a type.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

OUTSIDE = "O"
# Letter and type with any separator, such as "B_PER", and the reverse.
_LETTER_FIRST = re.compile(r"(?P<letter>[A-Za-z])[^A-Za-z0-9]+(?P<kind>.+)")
_LETTER_LAST = re.compile(r"(?P<kind>.+?)[^A-Za-z0-9]+(?P<letter>[A-Za-z])")


class Letters(NamedTuple):
    """The prefixes of a scheme's tags: of an entity's only, first, inner and last word."""

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
# Prefixes with the same meaning.
_MEANING = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}


class Entities(NamedTuple):
    """E non-overlapping entities in the order of the text.

    Attributes:
        starts: int64 [E], index of the first word.
        ends: int64 [E], index after the last word.
        types: str [E].
    """

    starts: np.ndarray
    ends: np.ndarray
    types: np.ndarray


def parse(tag: str, scheme: str | None = None) -> tuple[str, str] | None:
    """Return the prefix and the type of a tag.

    Args:
        tag: a tag other than "O".
        scheme: scheme of the tag; None for any scheme except io.

    Returns:
        The prefix ("I" for a bare type) and the type ("" for none); None where the tag is not valid.
    """
    if scheme == IO:
        return ("I", tag) if tag else None
    letter, hyphen, kind = tag.partition("-")
    known = _MEANING if scheme is None else {"B", "I"} if scheme == IOB1 else set(SCHEMES[scheme])
    return (letter, kind) if letter in known and bool(kind) == bool(hyphen) else None


def first_unknown(tags: Sequence[str], scheme: str | None = None) -> int | None:
    """Return the index of the first tag that is not valid in a scheme (None: any but io); None if all are valid."""
    unknown = {tag for tag in set(tags) if tag != OUTSIDE and parse(tag, scheme) is None}
    return next((index for index, tag in enumerate(tags) if tag in unknown), None) if unknown else None


def similar_tag(tag: str, scheme: str | None = None) -> str | None:
    """Return the valid tag that an invalid one such as "B_PER", "b-per", "PER-B" or "o" means; None if it is unknown.

    Args:
        tag: a tag that `parse` does not accept.
        scheme: scheme of the tag; None for any scheme except io, in which all tags are valid.
    """
    if tag in ("o", "0"):
        return OUTSIDE
    spelled = tag.upper() if tag.islower() else tag
    matches = (pattern.fullmatch(spelled) for pattern in (_LETTER_FIRST, _LETTER_LAST))
    candidates = [spelled, *(f"{match['letter'].upper()}-{match['kind']}" for match in matches if match)]
    return next((candidate for candidate in candidates if parse(candidate, scheme)), None)


def entities_of(tags: Sequence[str], sentence_splits: np.ndarray, scheme: str | None = None) -> Entities:
    """Return the entities of tags in any scheme, also where the tags break its rules.

    An entity starts at a tag with a first or only prefix, or at a tag that does not continue an entity of the same
    type. It ends before the next start, before "O" and at the end of the sentence. conlleval, the script of the shared
    tasks, and seqeval in its default mode do the same.

    Args:
        tags: W tags, each "O" or valid for `parse`.
        sentence_splits: int64 [N + 1], offsets of words.
        scheme: "io" for bare types; other values have no effect.
    """
    distinct = dict.fromkeys(tags)
    kinds: dict[str, int] = {}
    # For each distinct tag: prefix and index of the type; -1 for the type of "O".
    letters, numbers = np.full(len(distinct), OUTSIDE), np.full(len(distinct), -1)
    for index, tag in enumerate(distinct):
        distinct[tag] = index
        if tag != OUTSIDE:
            parsed = parse(tag, scheme)
            if parsed is None:
                raise ValueError(f"{tag!r} is not a tag")
            letters[index] = _MEANING[parsed[0]]
            numbers[index] = kinds.setdefault(parsed[1], len(kinds))
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
    """Return the tags of entities in a scheme.

    The scheme io merges adjacent entities of the same type.

    Args:
        entities: entities within `words` words.
        words: number of words, W.
        scheme: key of `SCHEMES`.
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
    """Return all tags of a scheme for these types: "O", then the tags of each type in alphabetical order."""
    letters = ("B", "I") if scheme == IOB1 else tuple(dict.fromkeys(SCHEMES[scheme]))
    return (OUTSIDE, *(_tag(letter, kind) for kind in sorted(kinds) for letter in letters))


def detect(tags: Sequence[str], sentence_splits: np.ndarray) -> str | None:
    """Return the scheme of tags; None where there is no entity.

    Args:
        tags: W tags, each "O" or valid for `parse`.
        sentence_splits: int64 [N + 1], offsets of words.
    """
    letters = {parsed[0] for tag in set(tags) if tag != OUTSIDE and (parsed := parse(tag))}
    if not letters:
        return None
    for scheme, its_letters in (("bilou", "LU"), ("bmes", "M"), ("iobes", "ES")):
        if letters.intersection(its_letters):
            return scheme
    entities = entities_of(tags, sentence_splits)
    # A few violations of a scheme are annotation errors.
    broken = {
        scheme: sum(tag != expected for tag, expected in zip(tags, tags_of(entities, len(tags), scheme), strict=True))
        for scheme in (DEFAULT_SCHEME, IOB1)
    }
    return min(broken, key=lambda scheme: broken[scheme])


def scheme_of_labels(labels: Sequence[str]) -> str | None:
    """Return the tag scheme of a model's labels; None where the labels are not tags."""
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


class Scores(NamedTuple):
    """Scores of all entities or of one type, from 0 to 1; 0 where the denominator is 0.

    Attributes:
        precision: fraction of the predicted entities that are correct.
        recall: fraction of the true entities that are predicted.
        f1: harmonic mean of precision and recall.
        true: number of true entities.
    """

    precision: float
    recall: float
    f1: float
    true: int


def entity_scores(true: Entities, predicted: Entities) -> tuple[Scores, dict[str, Scores]]:
    """Return scores of all entities together (the micro average) and of each type, in alphabetical order.

    Args:
        true: true entities of all sentences, with word indices over all sentences.
        predicted: predicted entities of the same sentences.
    """
    _, in_true, in_predicted = np.intersect1d(true.starts, predicted.starts, assume_unique=True, return_indices=True)
    same = true.ends[in_true] == predicted.ends[in_predicted]
    same &= true.types[in_true] == predicted.types[in_predicted]
    right = true.types[in_true][same]
    by_type = {
        kind: _scores(int((right == kind).sum()), int((predicted.types == kind).sum()), int((true.types == kind).sum()))
        for kind in sorted({*true.types.tolist(), *predicted.types.tolist()})
    }
    return _scores(len(right), len(predicted.starts), len(true.starts)), by_type


def _scores(right: int, predicted: int, true: int) -> Scores:
    precision = right / predicted if predicted else 0.0
    recall = right / true if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return Scores(precision, recall, f1, true)
