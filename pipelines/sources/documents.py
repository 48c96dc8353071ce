"""Define the document of the corpus pipeline, its ID, its split and its partition."""

import dataclasses
import hashlib
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Document:
    """One document of an input file.

    Attributes:
        paragraphs: Its text. A sentence never spans two paragraphs.
        title: Its title, or "".
        source: Path of the file.
        segmented: Whether each paragraph is one sentence, by the format of the file.
        rejected: The rule by which the reader rejects it, or "". A rejected document is counted and listed, with its
            paragraphs as the listed text.
        language: ISO 639 code that the file states, or "".
        line: Its position in the file, from 1: line of a text file, row of a Parquet file, item of a JSON array; 0 if
            the format has no positions.
        source_id: Value of its `--id_field`, or "".
    """

    paragraphs: list[str]
    title: str = ""
    source: str = ""
    segmented: bool = False
    rejected: str = ""
    language: str = ""
    line: int = 0
    source_id: str = ""


def identity(sentences: Sequence[str]) -> bytes:
    """Return the 16-byte ID of a text: BLAKE2b of its cleaned sentences.

    Equal texts are one document in all files, so that results depend neither on file names nor on their order.
    """
    return hashlib.blake2b("\n".join(sentences).encode("utf-8"), digest_size=16).digest()


def is_validation(document_id: bytes, validation_fraction: float) -> bool:
    """Return whether a document is in the validation split, by its ID only: added documents move no other document."""
    return int.from_bytes(document_id[8:12], "big") < validation_fraction * 2**32


def partition_of(document_id: bytes, num_partitions: int) -> int:
    """Return the partition of a document, from 0 to `num_partitions` - 1, uniformly distributed."""
    return int.from_bytes(document_id[:8], "big") % num_partitions
