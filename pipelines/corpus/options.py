"""The options of job 1."""

import dataclasses

from pipelines.cleaning.rules import CleaningOptions
from pipelines.sources import ReadOptions
from pipelines.sources.documents import is_validation, partition_of
from pipelines.vocabulary.vocabulary_options import VocabularyOptions


@dataclasses.dataclass(frozen=True)
class CorpusOptions(VocabularyOptions):
    """The options of job 1, its vocabulary's included.

    Attributes:
        read: how files are read.
        language: ISO 639 code, for sentence segmentation.
        segmenter: a name of `pipelines.corpus.segmentation.SEGMENTERS`.
        truncation_noise: share of sentences that are cut off at a random word.
        num_partitions: shards of the train split; a partition is sampled and shuffled in memory as a whole.
        validation_fraction: share of documents in the validation split.
        cleaning: which cleaning rules run, and their thresholds.
        identify_language: whether documents in another language than `language` are left out.
        decontaminate: evaluation files whose text is looked for in the documents.
        decontaminate_action: "drop" or "report": what becomes of a document that shares text with them.
        near_duplicates: whether documents that say almost the same as another are left out.
        repeated_paragraphs: whether paragraphs that stand in another document too are left out.
    """

    read: ReadOptions
    language: str
    segmenter: str
    truncation_noise: float
    num_partitions: int
    validation_fraction: float
    cleaning: CleaningOptions = dataclasses.field(default_factory=CleaningOptions)
    identify_language: bool = False
    decontaminate: list[str] = dataclasses.field(default_factory=list)
    decontaminate_action: str = "drop"
    near_duplicates: bool = False
    repeated_paragraphs: bool = False

    def num_partitions_of(self, split: str) -> int:
        """Return the number of partitions of a split; partitions of both splits are about equally large."""
        return (
            self.num_partitions if split == "train" else max(1, round(self.num_partitions * self.validation_fraction))
        )


# (split, number within the split)
Partition = tuple[str, int]


def partition_of_document(document_id: bytes, options: CorpusOptions) -> Partition:
    """Return the partition of a document, by its identity alone."""
    split = "validation" if is_validation(document_id, options.validation_fraction) else "train"
    return split, partition_of(document_id, options.num_partitions_of(split))
