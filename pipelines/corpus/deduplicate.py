"""Deduplicate the documents of a partition."""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import msgspec

from beambert.pipelines.cleaning.rules import DUPLICATE
from beambert.pipelines.documents import Document, Removed

# Rules by which corpus-wide deduplication rejects documents and drops paragraphs.
NEAR_DUPLICATE, REPEATED_PARAGRAPH = "near_duplicate", "repeated_paragraph"
_ID = operator.attrgetter("id")
_NOTHING = Removed()
_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The results of corpus-wide deduplication for the documents of a partition.

    Attributes:
        near_duplicate_of: for each document to drop, the smallest ID among its near-duplicates.
        repeated: by document ID, numbers of the paragraphs to drop, which are also in another document.
    """

    near_duplicate_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeated: Mapping[str, Set[int]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DeduplicationResult:
    """The documents of a partition after all rules, in order of their IDs.

    Attributes:
        kept: documents of the corpus.
        rejected: rejected documents.
        near_duplicate_of: as of `Duplicates`.
        repeated: dropped paragraphs that also occur in another document, by document ID.
    """

    kept: list[Document]
    rejected: list[Document]
    near_duplicate_of: Mapping[str, str]
    repeated: dict[str, list[str]]


def precedence(document: Document) -> tuple[Any, ...]:
    """Return the sort key of documents with the same ID, of which the first one is kept.

    The largest weight comes first, then metadata from the file. The file name decides only between documents that are
    equal in everything before it.
    """
    removed = b"" if document.removed == _NOTHING else _ENCODER.encode(document.removed)
    return (
        -document.weight,
        document.title,
        document.language,
        document.sentence_counts,
        removed,
        document.source,
        document.paragraphs,
        document.origin,
        document.rejected,
        document.line,
        document.byte,
        document.source_id,
    )


def in_order(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the documents of a partition by ID, then by `precedence`, independent of the order of arrival."""
    for _, same in itertools.groupby(sorted(documents, key=_ID), _ID):
        group = list(same)
        yield from group if len(group) == 1 else sorted(group, key=precedence)


def deduplicate(documents: Iterable[Document], duplicates: Duplicates | None = None) -> DeduplicationResult:
    """Reject exact duplicates and near-duplicates, and drop repeated paragraphs.

    Args:
        documents: all documents of a partition, with IDs, in any order. Rejected ones stay rejected.
        duplicates: the results of corpus-wide deduplication; None for none.
    """
    duplicates = duplicates or Duplicates()
    result = DeduplicationResult([], [], duplicates.near_duplicate_of, {})
    before = ""
    for document in in_order(documents):
        rule = document.rejected
        if not rule and document.id == before:
            rule = DUPLICATE
        elif not rule:
            before = document.id
            if document.id in duplicates.near_duplicate_of:
                rule = NEAR_DUPLICATE
            elif numbers := duplicates.repeated.get(document.id):
                kept = [text for number, text in enumerate(document.paragraphs) if number not in numbers]
                result.repeated[document.id] = [document.paragraphs[number] for number in sorted(numbers)]
                if kept:
                    document = dataclasses.replace(document, paragraphs=kept)
                else:
                    rule = REPEATED_PARAGRAPH
        if rule:
            result.rejected.append(dataclasses.replace(document, rejected=rule))
        else:
            result.kept.append(document)
    return result
