"""The options of job 1, which builds the corpus."""

import dataclasses

from beambert.common.typed_json import NonNegative, Positive
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.documents import is_validation, partition_of
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.vocabulary.vocabulary_options import VocabularyOptions


@dataclasses.dataclass(frozen=True)
class CorpusOptions(VocabularyOptions):
    """The options of job 1, including those of the vocabulary.

    Attributes:
        read: Options for reading input files.
        language: ISO 639 code of the language, for sentence segmentation.
        segmenter: Sentence segmenter, a key of `beambert.pipelines.segmentation.segmenters.SEGMENTERS`.
        truncation_noise: Fraction of sentences to truncate at a random word.
        num_partitions: Number of shards of the train split. Each partition is sampled and shuffled in memory.
        validation_fraction: Fraction of documents in the validation split.
        cleaning: Active cleaning rules and their thresholds.
        identify_language: Whether to reject documents in a language other than `language`.
        decontaminate: Evaluation files to decontaminate against.
        decontaminate_action: "drop" to reject a document that shares text with them, "report" to keep and list it.
        near_duplicates: Whether to drop near-duplicate documents.
        repeated_paragraphs: Whether to drop paragraphs that also occur in another document.
        abbreviations: More abbreviations for the segmenter "rules", from `read_abbreviations`: the content of the file,
            not its path.
    """

    read: ReadOptions
    language: str
    segmenter: str
    truncation_noise: NonNegative
    num_partitions: Positive
    validation_fraction: NonNegative
    cleaning: CleaningOptions = dataclasses.field(default_factory=CleaningOptions)
    identify_language: bool = False
    decontaminate: list[str] = dataclasses.field(default_factory=list)
    decontaminate_action: str = "drop"
    near_duplicates: bool = False
    repeated_paragraphs: bool = False
    abbreviations: str = ""

    def num_partitions_of(self, split: str) -> int:
        """Return the number of partitions of a split; partitions of both splits have similar sizes."""
        return (
            self.num_partitions if split == "train" else max(1, round(self.num_partitions * self.validation_fraction))
        )


# (split, number within the split)
Partition = tuple[str, int]


def partition_of_document(document_id: bytes, options: CorpusOptions) -> Partition:
    """Return the partition of a document, which depends on its ID only."""
    split = "validation" if is_validation(document_id, options.validation_fraction) else "train"
    return split, partition_of(document_id, options.num_partitions_of(split))
