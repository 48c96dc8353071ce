"""Blocks of documents, the form in which documents are shuffled to their partition, and deduplication of a partition.

The shuffle transports either the blocks or their locations in block files. Block files are for runners that keep a
shuffle in memory. They also preserve the progress of a job that is killed.
"""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import msgspec
import pyarrow
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.pipelines.cleaning.rules import DUPLICATE
from beambert.pipelines.corpus.options import Partition
from beambert.pipelines.documents import Document, Removed
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import is_written, read_marker, write_atomically, write_marker

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DOCUMENTS = msgspec.msgpack.Decoder(list[Document])


def to_block(documents: Iterable[Document]) -> bytes:
    """Return documents as a compressed block, with the same bytes for equal documents."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(_ENCODER.encode(documents))
    return sink.getvalue().to_pybytes()


def from_block(block: bytes) -> list[Document]:
    """Return the documents of a block from `to_block`.

    Raises:
        ValueError, OSError: the block is corrupt.
    """
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(block), "zstd") as file:
        return _DOCUMENTS.decode(file.read())


@dataclasses.dataclass(frozen=True)
class BlockLocation:
    """The location of a block: `length` bytes of a file, from `offset` on."""

    path: str
    offset: int
    length: int


def read_blocks(blocks: Iterable[bytes | BlockLocation]) -> Iterator[Document]:
    """Yield the documents of blocks, which are bytes or locations in block files.

    Raises:
        SourceError: a block in a file is corrupt.
    """
    for block in blocks:
        if isinstance(block, BlockLocation):
            with FileSystems.open(block.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
                file.seek(block.offset)
                content = file.read(block.length)
            try:
                yield from from_block(content)
            except (ValueError, OSError) as error:
                raise SourceError(f"{block.path} is corrupt; delete it and run the same command again") from error
        else:
            yield from from_block(block)


def write_block_file(path: str, blocks: Iterable[tuple[Partition, bytes]]) -> list[tuple[Partition, BlockLocation]]:
    """Write blocks to a file, and return their partitions and locations."""
    locations = []
    with write_atomically(path) as file:
        for partition, block in blocks:
            locations.append((partition, BlockLocation(path, file.bytes, len(block))))
            file.write(block)
    return locations


def write_block_marker(path: str, locations: list[tuple[Partition, BlockLocation]], summary: dict[str, Any]) -> None:
    """Write the completion marker of a block file, with a JSON object as summary."""
    places = [(partition, block.offset, block.length) for partition, block in locations]
    write_marker(f"{path}.json", [places, summary, sum(block.length for _, block in locations)])


def read_block_marker(path: str) -> tuple[list[tuple[Partition, BlockLocation]], dict[str, Any]] | None:
    """Return the partitions and locations of the blocks of a file, and its summary.

    Returns None if the file is incomplete or was removed or changed.
    """
    marker = read_marker(f"{path}.json", tuple[list[tuple[Partition, int, int]], dict[str, Any], int])
    if marker is None or not is_written(path, marker[2]):
        return None
    places, summary, _ = marker
    return [(partition, BlockLocation(path, offset, length)) for partition, offset, length in places], summary


# Rules by which corpus-wide deduplication rejects documents and drops paragraphs.
NEAR_DUPLICATE, REPEATED_PARAGRAPH = "near_duplicate", "repeated_paragraph"
DUPLICATE_URL, DOMAIN_LINE = "duplicate_url", "domain_line"
_ID = operator.attrgetter("id")
_NOTHING = Removed()
_JSON_ENCODER = msgspec.json.Encoder(order="deterministic")


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The results of corpus-wide deduplication for the documents of a partition.

    Attributes:
        near_duplicate_of: for each document to drop, the smallest ID among its near-duplicates.
        repeated: by document ID, numbers of the paragraphs to drop, which are also in another document.
        duplicate_url_of: for each document to drop, the smallest ID among the documents with its URL.
        domain_lines: by document ID, numbers of the paragraphs to drop, which many documents of its domain have.
    """

    near_duplicate_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeated: Mapping[str, Set[int]] = dataclasses.field(default_factory=dict)
    duplicate_url_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    domain_lines: Mapping[str, Set[int]] = dataclasses.field(default_factory=dict)

    def rule_of(self, document_id: str) -> str:
        """Return the rule that drops a document, or ""."""
        if document_id in self.duplicate_url_of:
            return DUPLICATE_URL
        return NEAR_DUPLICATE if document_id in self.near_duplicate_of else ""

    def like(self, document: Document) -> str | None:
        """Return the ID of the document that is kept instead of a dropped one."""
        originals = {DUPLICATE_URL: self.duplicate_url_of, NEAR_DUPLICATE: self.near_duplicate_of}
        return originals.get(document.rejected, {}).get(document.id)


@dataclasses.dataclass(frozen=True)
class DeduplicationResult:
    """The documents of a partition after all rules, in order of their IDs.

    Attributes:
        kept: documents of the corpus.
        rejected: rejected documents.
        duplicates: the results of corpus-wide deduplication.
        repeated: (rule, paragraph) of dropped paragraphs that also occur in another document, by document ID.
    """

    kept: list[Document]
    rejected: list[Document]
    duplicates: Duplicates
    repeated: dict[str, list[tuple[str, str]]]


def precedence(document: Document) -> tuple[Any, ...]:
    """Return the sort key of documents with the same ID, of which the first one is kept.

    The largest weight comes first, then metadata from the file. The file name decides only between documents that are
    equal in everything before it.
    """
    removed = b"" if document.removed == _NOTHING else _JSON_ENCODER.encode(document.removed)
    return (
        -document.weight,
        document.title,
        document.language,
        document.sentence_counts,
        removed,
        sorted(document.metadata.items()),
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
    """Reject exact duplicates, duplicates by URL and near-duplicates, and drop repeated lines and paragraphs.

    Args:
        documents: all documents of a partition, with IDs, in any order. Rejected ones stay rejected.
        duplicates: the results of corpus-wide deduplication; None for none.
    """
    duplicates = duplicates or Duplicates()
    result = DeduplicationResult([], [], duplicates, {})
    before = ""
    for document in in_order(documents):
        rule = document.rejected
        if not rule and document.id == before:
            rule = DUPLICATE
        elif not rule:
            before = document.id
            rule = duplicates.rule_of(document.id)
            dropped = dict.fromkeys(duplicates.repeated.get(document.id, ()), REPEATED_PARAGRAPH)
            dropped.update(dict.fromkeys(duplicates.domain_lines.get(document.id, ()), DOMAIN_LINE))
            if dropped and not rule:
                paragraphs = document.paragraphs
                kept = [text for number, text in enumerate(paragraphs) if number not in dropped]
                result.repeated[document.id] = [(dropped[number], paragraphs[number]) for number in sorted(dropped)]
                if kept:
                    document = dataclasses.replace(document, paragraphs=kept)
                else:
                    # The rule of its longest paragraph, and of equally long ones the first.
                    rule = dropped[max(dropped, key=lambda number: (len(paragraphs[number]), -number))]
        if rule:
            result.rejected.append(dataclasses.replace(document, rejected=rule))
        else:
            result.kept.append(document)
    return result
