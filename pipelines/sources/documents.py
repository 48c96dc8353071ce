"""The document as it travels through the corpus pipeline, and its identity."""

import dataclasses
import hashlib
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Document:
    """One document as a reader found it.

    Attributes:
        paragraphs: its text; a sentence never crosses from one to the next.
        title: may be empty.
        source: the file it came from.
        segmented: each paragraph is one sentence already, as the author of the file says.
        rejected: why the reader takes it for no document, or ""; it is counted and listed, not built from. Its
            paragraphs are then what the list shows of it.
        language: ISO 639 code where the file states it, or "".
        line: where it begins in the file, from 1: the line of a text file, the row of a Parquet file, the item of a
            JSON array; 0 where the format has none.
        source_id: what identifies it for the user (`--id_field`), or "".
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
    """Return the 16 bytes that identify a text: blake2b of its cleaned sentences.

    Equal texts are one document wherever they were found, so that neither file names nor their order show in results.
    """
    return hashlib.blake2b("\n".join(sentences).encode("utf-8"), digest_size=16).digest()


def is_validation(document_id: bytes, validation_fraction: float) -> bool:
    """Return whether a document is in the validation split, by its text alone: adding documents moves none."""
    return int.from_bytes(document_id[8:12], "big") < validation_fraction * 2**32


def partition_of(document_id: bytes, num_partitions: int) -> int:
    """Return the partition of a document, uniform over `num_partitions`."""
    return int.from_bytes(document_id[:8], "big") % num_partitions
