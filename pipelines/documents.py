"""Define the document of the corpus pipeline, its ID, its split and its partition."""

import dataclasses
import hashlib
import math
from collections.abc import Sequence

from beambert.pipelines.errors import SourceError

# Maximum bytes of text in a partition.
PARTITION_BYTES = 64 << 20
# Text that readers remove, counted like that of the rules: licenses of files, and notes about them.
LICENSE = "license"
NOTES = "notes"


@dataclasses.dataclass(frozen=True)
class Removed:
    """What the reader and the cleaning rules found in a document.

    Attributes:
        counts: number of paragraphs that each rule changed or dropped.
        dropped: (rule, snippet) of the first dropped paragraphs of each rule.
        lost: bytes of text that the reader and each rule removed.
        html_tags: whether the text has HTML tags, which only warns.
        contamination: for a document that shares text with evaluation data, where; else empty.
        personal_data: for each rule that finds personal data and does not mask it, the first finding in its context;
            with a placeholder in place of it if the document is rejected.
        quality: its probability of being good, by a quality model; else None.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    dropped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    lost: dict[str, int] = dataclasses.field(default_factory=dict)
    html_tags: bool = False
    contamination: dict[str, str] = dataclasses.field(default_factory=dict)
    personal_data: dict[str, str] = dataclasses.field(default_factory=dict)
    quality: float | None = None


@dataclasses.dataclass(frozen=True)
class Document:
    """One document, from its file to its partition of the corpus.

    Attributes:
        paragraphs: Its text. A sentence never spans two paragraphs. After segmentation, each line of a paragraph is one
            sentence.
        title: Its title, or "".
        source: Path of the file.
        segmented: Whether each paragraph is one sentence, by the format of the file.
        rejected: The rule by which the reader or a later step rejects it, or "". A rejected document is counted and
            listed with its text, and later steps do not change it.
        language: ISO 639 code that the file states, or "".
        line: Its position in the file, from 1: line of a text file, row of a Parquet file, item of a JSON array; 0 if
            the format has no positions.
        byte: In a file that is read in ranges of lines, its offset, or that of its frame in a compressed file, instead
            of `line`; else -1.
        source_id: Value of its `--id_field`, or "".
        origin: Pattern that matched the file, or "".
        weight: Sampling weight: how often it is sampled per copy of the data, on average.
        id: Hexadecimal `identity` of its sentences, which segmentation sets; "" before. It stays the same if a later
            step changes the text.
        metadata: What else the file states about it, by name: the URL and the date of a web page (`url`, `date`), and
            the fields of --keep_fields.
        removed: What the reader and the cleaning rules found.

    Raises:
        TypeError: paragraphs is a string.
        SourceError: the weight is negative or not finite.
    """

    paragraphs: list[str]
    title: str = ""
    source: str = ""
    segmented: bool = False
    rejected: str = ""
    language: str = ""
    line: int = 0
    byte: int = -1
    source_id: str = ""
    origin: str = ""
    weight: float = 1.0
    id: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    removed: Removed = dataclasses.field(default_factory=Removed)

    def __post_init__(self) -> None:
        if isinstance(self.paragraphs, str):
            raise TypeError(f"paragraphs of a document must be a list of strings, not {self.paragraphs[:40]!r}")
        if not 0 <= self.weight < math.inf:
            raise SourceError(f"invalid weight {self.weight} of a document: must be a number of at least 0")
        if self.title is None:  # Rows of databases have null titles.
            object.__setattr__(self, "title", "")

    @property
    def place(self) -> str:
        """Return where the document comes from, for messages."""
        return self.source or "the pipeline"

    @property
    def text(self) -> str:
        """Return the paragraphs, one after another; after segmentation, each line is a sentence."""
        return "\n".join(self.paragraphs)

    @property
    def sentences(self) -> list[str]:
        """Return the sentences of a segmented document."""
        return self.text.split("\n") if self.paragraphs else []

    @property
    def num_sentences(self) -> int:
        """Return the number of sentences of a segmented document."""
        return self.text.count("\n") + bool(self.paragraphs)

    @property
    def sentence_counts(self) -> tuple[int, ...]:
        """Return the number of sentences of each paragraph of a segmented document."""
        return tuple(paragraph.count("\n") + 1 for paragraph in self.paragraphs)


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


def choose_num_partitions(input_bytes: int) -> int:
    """Return the number of partitions for a corpus of `input_bytes` of text.

    A partition has at most 64 MiB, so that it fits in memory with its instances. A corpus of up to 1 GiB is divided
    into up to 16 partitions of about 2 MiB or more. That is enough for several processes, and every document still has
    many others to be paired with.
    """
    return max(-(-input_bytes // PARTITION_BYTES), min(16, -(-input_bytes // (2 << 20))), 1)


def require_segmented(document: Document) -> None:
    """Raise SourceError if a document is neither segmented nor rejected."""
    if not document.id and not document.rejected:
        raise SourceError(f"a document of {document.place} is not segmented; apply SegmentSentences first")


def identified(document: Document, language: str = "") -> Document:
    """Return a segmented or rejected document with an ID, by which it is distributed over the partitions.

    Args:
        document: the document.
        language: ISO 639 code, for a rejected document without a language of its own.

    Raises:
        SourceError: the document is neither segmented nor rejected.
    """
    require_segmented(document)
    if document.id and document.language:
        return document
    # Title and metadata distribute documents without text over the partitions.
    content = [document.rejected, document.title, *document.paragraphs, *map(str, sorted(document.metadata.items()))]
    document_id = document.id or identity(content).hex()
    return dataclasses.replace(document, id=document_id, language=document.language or language)
