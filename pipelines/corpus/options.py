"""The options of job 1, which builds the corpus."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from beambert.common.command_line.options import Flag, options_of
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.typed_json import Count, Fraction
from beambert.pipelines.cleaning.language_codes import require_language
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.documents import is_validation, partition_of
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import FORMATS, get_format
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.vocabulary.vocabulary_options import LANGUAGE_REMEDY, VocabularyOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(VocabularyOptions):
    """The options of job 1, including those of the vocabulary; the help of the flags has these descriptions.

    Attributes:
        read: Options of reading input files.
        language: ISO 639 language code of documents that state none, or und (undetermined); it selects the sentence
            rules and the default of --do_lower_case.
        segmenter: Sentence segmenter: rules (sentencex with corrections), sentencex (unmodified) or lines (one sentence
            per line).
        abbreviations: Text file with one abbreviation a line, after which --segmenter rules never ends a sentence, in
            addition to those of the language.
        truncation_noise: Fraction of sentences to truncate at a random word, for robustness to incomplete text;
            google-research/bert recommends 0.02 (default: 0).
        validation_fraction: Fraction of documents in the validation split, selected by a hash of their text.
        num_partitions: Number of hash partitions of the documents; another number gives other examples for the same
            seed (default: by input size).
        cleaning: Active cleaning rules and their thresholds.
        identify_language: Reject documents that are not in --language; documents under 200 characters are kept
            (requires the extra [clean]).
        decontaminate: Evaluation data (SQuAD JSON, GLUE TSV, JSON Lines or text): reject documents that share a 13-gram
            of words with it.
        decontaminate_action: Action for documents that --decontaminate finds; report lists and counts them, but keeps
            them.
        quality_model: Model of beambert quality train: reject documents whose probability of being good text is below
            --min_quality.
        min_quality: Minimum probability of good text by --quality_model; see the table that the training prints.
        quality_model_sha256: SHA-256 of the quality model.
        filters: Functions of your own, package.module:function, that reject documents: each gets a segmented Document,
            and returns True or the name of a rule to reject it. Its package must be importable, also on the workers.
        block_urls: Files of domains (example.org, with its subdomains), ends of paths (.pdf) and words of URLs
            (casino), one a line: reject documents whose URL matches one.
        allow_urls: Files of the same form: reject documents whose URL matches none, and those without a URL.
        duplicate_urls: Keep one of the documents with the same URL, without regard to scheme, "www.", fragment and
            parameters of trackers.
        domain_lines: Remove lines that occur in N or more documents of a domain, such as menus and cookie banners
            (default: off).
        near_duplicates: Remove near-duplicates, not only equal documents: they share about 70% of their 5-grams of
            words (MinHash).
        repeated_paragraphs: Remove paragraphs of 8 or more words that occur in another document; one document keeps
            each of them.

    Each of `num_partitions` is sampled and shuffled in memory. `abbreviations` is the content of the file, from
    `read_abbreviations`, not its path.

    Raises:
        SourceError: a value is invalid, or options contradict each other.
    """

    read: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    language: Annotated[str, Flag("corpus", metavar="CODE")] = "en"
    segmenter: Annotated[Literal["rules", "sentencex", "lines"], Flag("corpus", metavar="NAME")] = "rules"
    abbreviations: Annotated[str, Flag("corpus", type=ANY_PATH, metavar="FILE")] = ""
    truncation_noise: Annotated[Fraction, Flag("corpus")] = 0.0
    validation_fraction: Annotated[Fraction, Flag("corpus")] = 0.02
    num_partitions: Annotated[int, Meta(ge=1, le=100_000), Flag("corpus")]
    cleaning: CleaningOptions = dataclasses.field(default_factory=CleaningOptions)
    identify_language: Annotated[bool, Flag("cleaning")] = False
    decontaminate: Annotated[list[str], Flag("cleaning", type=ANY_PATH, metavar="FILE")] = dataclasses.field(
        default_factory=list
    )
    decontaminate_action: Annotated[Literal["drop", "report"], Flag("cleaning")] = "drop"
    quality_model: Annotated[str, Flag("cleaning", type=ANY_PATH, metavar="FILE")] = ""
    min_quality: Annotated[Fraction, Flag("cleaning", metavar="P")] = 0.0
    quality_model_sha256: str = ""
    filters: Annotated[list[str], Flag("cleaning", name="filter", metavar="MODULE:FUNCTION")] = dataclasses.field(
        default_factory=list
    )
    block_urls: Annotated[list[str], Flag("cleaning", type=ANY_PATH, metavar="FILE")] = dataclasses.field(
        default_factory=list
    )
    allow_urls: Annotated[list[str], Flag("cleaning", type=ANY_PATH, metavar="FILE")] = dataclasses.field(
        default_factory=list
    )
    duplicate_urls: Annotated[bool, Flag("deduplication", name="drop_duplicate_urls")] = False
    domain_lines: Annotated[Count, Flag("deduplication", name="drop_domain_lines")] = 0
    near_duplicates: Annotated[bool, Flag("deduplication", name="drop_near_duplicates")] = False
    repeated_paragraphs: Annotated[bool, Flag("deduplication", name="drop_repeated_paragraphs")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_language(self.language)
        read = self.read
        if read.input_format not in ("auto", *FORMATS):
            raise SourceError(
                f"invalid --input_format {read.input_format}: must be auto or one of {', '.join(FORMATS)}"
            )
        if self.language_sampling_exponent != 1.0 and not (
            read.input_format == "auto" or get_format(read.input_format).has_language
        ):
            raise SourceError(
                f"--language_sampling_exponent {self.language_sampling_exponent:g} has no effect on --input_format "
                f"{read.input_format}, whose documents state no language; {LANGUAGE_REMEDY}"
            )
        if read.wikitext_extractor != "beambert" and read.input_format not in ("auto", "wikipedia"):
            raise SourceError(
                f"--wikitext_extractor {read.wikitext_extractor} has no effect on --input_format {read.input_format}: "
                "only Wikipedia dumps contain wikitext; leave the flag out"
            )
        if self.domain_lines == 1:
            raise SourceError("--drop_domain_lines 1 would remove every line of every page; give 2 or more")
        if self.quality_model and not self.min_quality:
            raise SourceError("--quality_model requires --min_quality above 0, such as 0.5")
        if self.min_quality and not self.quality_model:
            raise SourceError(
                f"--min_quality {self.min_quality:g} has no effect without --quality_model; give a model of beambert "
                "quality train, or leave the flag out"
            )
        if self.abbreviations and self.segmenter != "rules":
            raise SourceError(f"--abbreviations has no effect on --segmenter {self.segmenter}; leave one of them out")

    def num_partitions_of(self, split: str) -> int:
        """Return the number of partitions of a split; partitions of both splits have similar sizes."""
        return (
            self.num_partitions if split == "train" else max(1, round(self.num_partitions * self.validation_fraction))
        )


_URL_RULES = ("block_urls", "allow_urls", "duplicate_urls", "domain_lines")
# (split, number within the split)
Partition = tuple[str, int]


def partition_of_document(document_id: str, options: CorpusOptions) -> Partition:
    """Return the partition of a document by its hexadecimal ID, on which alone it depends."""
    identity = bytes.fromhex(document_id)
    split = "validation" if is_validation(identity, options.validation_fraction) else "train"
    return split, partition_of(identity, options.num_partitions_of(split))


def url_flag(options: Mapping[str, Any]) -> str:
    """Return the first flag of the rules for URLs that is set in the options of a corpus, or ""."""
    flags = {option.name: option.flag.name or option.name for option in options_of(CorpusOptions) if option.flag}
    return next((f"--{flags[rule]}" for rule in _URL_RULES if options[rule]), "")
