"""Define the types of the nested objects of `corpus.json` and `dataset.json`, to validate manifests.

Fields that are not required are written only where they apply. Unknown fields are allowed. This module imports neither
Beam nor TensorFlow.
"""

from typing import Annotated, Any, NotRequired, Required, TypedDict

from msgspec import Meta

from beambert.common.typed_json import Count, Fraction, Number, Positive, Sha256

Split = Annotated[str, Meta(pattern="^(train|validation)$")]
# [path, bytes, time of last change, weight] of an input file; other files that the corpus depends on have no weight.
InputFile = list[str | Number | None]


class SplitCounts(TypedDict):
    """A count per split."""

    train: Count
    validation: Count


class TextSize(TypedDict, total=False):
    """The text of an input, which may have no documents or none rejected."""

    documents: Required[Count]
    sentences: Count
    words: Count
    characters: Count
    bytes: Count
    rejected: dict[str, Count]
    bytes_lost: dict[str, Count]


class LanguageSize(TypedDict):
    """The text of a language."""

    documents: Count
    words: Count
    sentences: Count
    characters: Count
    bytes: Count


class RejectedFile(TypedDict):
    """A file that lost more than half of its text."""

    file: str
    input: str
    kept: Count
    lost: dict[str, Count]


class PartSize(TypedDict, total=False):
    """The documents of a domain or of a range of probabilities, and the text of those that are kept."""

    documents: Count
    rejected: Count
    bytes: Count


class RejectedSample(TypedDict):
    """A rejected document or a dropped paragraph."""

    id: str
    title: str
    place: str
    text: str
    quality: NotRequired[str]


class ClassCounts(TypedDict):
    """A count per class of a quality model."""

    good: Count
    bad: Count


class QualityModelReport(TypedDict):
    """`beambert.pipelines.cleaning.quality_model.validation_report` of a model, and its documents by class."""

    documents: ClassCounts
    validation: ClassCounts
    accuracy: Fraction
    calibration: list[tuple[Count, Fraction, Fraction] | None]
    thresholds: list[tuple[Fraction, Fraction, Fraction]]


class Diacritics(TypedDict):
    """Letters that lose a mark in uncased text."""

    letters: Count
    lost: Count
    example: tuple[str, str]


class CorpusCounts(TypedDict):
    """The "counts" of `corpus.json`.

    Text that keeps its marks has no `diacritics`, and a corpus without a quality model no `quality_model`. A corpus of
    an earlier version has no counts of domains and qualities and no samples.
    """

    documents: SplitCounts
    sentences: SplitCounts
    documents_rejected: dict[str, Count]
    bytes: Count
    languages: dict[str, LanguageSize]
    documents_read: Count
    documents_reported: dict[str, Count]
    paragraphs_cleaned: dict[str, Count]
    files_mostly_rejected: list[RejectedFile]
    inputs: dict[str, TextSize]
    domains: NotRequired[dict[str, PartSize]]
    qualities: NotRequired[dict[str, PartSize]]
    quality_model: NotRequired[QualityModelReport]
    samples: NotRequired[dict[str, list[RejectedSample]]]
    diacritics: NotRequired[Diacritics]
    words: Count
    characters: Count


class LearnedFrom(TypedDict):
    """Words of the training text, and those excluded from learning the vocabulary."""

    distinct_words: Count
    distinct_words_excluded: Count
    words: Positive
    words_excluded: Count


class Alphabet(TypedDict):
    """The characters and words that --alphabet_limit excludes."""

    characters: Count
    characters_excluded: Count
    sufficient_limit: Count
    words_excluded: Count


class ValidationCoverage(TypedDict):
    """`beambert.tokenizer.wordpiece.Coverage` of a vocabulary."""

    words: Count
    unknown: Count
    whole_words: Count
    tokens: Count


class ValidationCoverages(TypedDict, total=False):
    """The coverage of the corpus's vocabulary and of that of --compare_vocab."""

    vocab: Required[ValidationCoverage]
    compare_vocab: ValidationCoverage


class CorpusVocabulary(TypedDict):
    """The "vocab" of `corpus.json`."""

    size: Positive
    sha256: Sha256
    learned_from: LearnedFrom | None
    validation: ValidationCoverages
    alphabet: Alphabet | None


class ExampleCounts(TypedDict):
    """`beambert.pipelines.examples.statistics.Statistics.numbers` of a split."""

    documents: Count
    sentences: Count
    tokens: Count
    unknown_tokens: Count
    instances: Count
    instances_labeled_1: Count
    instance_tokens: Count
    tokens_truncated: Count
    tokens_packed: Count
    segments_dropped: Count
    words_with_noise: Count
    rows: Count
    positions: Count
    masked_tokens: Count
    masked_as_mask: Count
    masked_as_random: Count
    masked_as_original: Count


class TrainingCounts(TypedDict):
    """The fields of `ExampleCounts` that are above 0 in the training split."""

    tokens: Positive
    instances: Positive
    instance_tokens: Positive
    positions: Positive


class OverlapCounts(TypedDict):
    """`beambert.pipelines.examples.train_eval_overlap.Overlap`."""

    documents: Count
    documents_found: Count
    sentences: Count
    sentences_found: Count


class DatasetCounts(TypedDict, total=False):
    """The "counts" of `dataset.json` beside those of its corpus, `CorpusCounts`, which `WriteShards` does not know."""

    train: ExampleCounts
    validation: ExampleCounts
    overlap: OverlapCounts
    warnings: list[str]


class RecordedDatasetOptions(TypedDict):
    """The "options" of `dataset.json` that its readers need, and the identity of the corpus and the vocabulary.

    The other options are those of `beambert.pipelines.instances.options.PretrainingDataOptions`.
    """

    objective: str
    masking: str
    dupe_factor: Positive
    masked_lm_prob: Number
    mask_rate: Number
    random_rate: Number
    random_seed: Count
    corpus: NotRequired[dict[str, Any]]
    corpus_sha256: NotRequired[Sha256]
    vocab_sha256: NotRequired[Sha256]
