"""Learn the vocabulary of a corpus from the word counts of its shards, in bounded memory.

Limits are applied by shard and by word group, never by worker. So the learned vocabulary does not depend on the runner,
the workers or the order of files:

1. A shard contains the documents of one hash partition. For training text, it emits its `WORDS_PER_SHARD` most frequent
   words (ties: order of code points) and the number of running words that it drops.
2. Words are distributed over groups by CRC-32, and the counts of a group are summed, multiplied by the weights of their
   inputs and rounded (`MergeWordCounts`).
3. A group keeps words with at least min_count occurrences, up to the `MAX_LEARNER_WORDS` / groups most frequent ones
   (ties as above).
4. The learner gets the words of all groups, at most `MAX_LEARNER_WORDS`.

With `--language_sampling_exponent`, the counts of each language are multiplied by its sampling factor
(`language_factors`) and rounded between steps 2 and 3.

Words of more than 200 characters, which are always "[UNK]", are dropped in step 1. `corpus.json` records the number of
dropped words. Validation text is only used to measure coverage, group by group; its shards drop no other words.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection

from beambert.common.word_rules import WordRules
from beambert.pipelines.cleaning.personal_data import require_placeholders
from beambert.pipelines.corpus.counts import add_marks, sum_counts
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.io.atomic_files import read_bytes, write_atomically, write_text
from beambert.pipelines.io.versions import require_same_rules
from beambert.pipelines.sources.readers import FileSplit
from beambert.pipelines.transforms.documents import CleanDocuments, ReadBlocks
from beambert.pipelines.transforms.partitions import (
    GroupByPartition,
    Grouped,
    corpus_options,
    deduplicate_partition,
    group_documents,
    upstream_of,
)
from beambert.pipelines.vocabulary.vocabulary_options import language_factors, require_languages
from beambert.pipelines.vocabulary.word_groups import (
    Batch,
    Group,
    GroupCounts,
    WordGroup,
    num_word_groups,
    prune_group,
    rounded,
    word_batches,
)
from beambert.tokenizer.learner import alphabet_losses, learn_vocabulary
from beambert.tokenizer.lost_marks import MarkCounts, count_marks
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import Coverage, coverage

# The learner takes less than 1 kB of memory per word.
MAX_LEARNER_WORDS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """The vocabulary of a corpus, and the vocabulary to compare it with.

    Attributes:
        vocab: the learned or given vocabulary.
        learned_from: word counts for `corpus.json`; None for a given vocabulary.
        compared: the vocabulary to compare with, or None.
        alphabet: result of `beambert.tokenizer.learner.alphabet_losses`; None for a given vocabulary.
    """

    vocab: Vocabulary
    learned_from: dict[str, int] | None
    compared: Vocabulary | None
    alphabet: dict[str, int] | None = None


def learn_or_read(_: None, word_groups: Iterable[WordGroup], options: CorpusOptions) -> Vocabularies:
    """Learn the vocabulary, or read the one given by --vocab_file.

    Raises:
        SourceError: there are no words to learn from, or the given vocabulary lacks a placeholder of the corpus.
        VocabularyError: there are too few words for the vocabulary size, or a vocabulary file is invalid.
    """
    compared = _read(options.compare_vocab) if options.compare_vocab else None
    if options.vocab_file:
        vocabulary = _read(options.vocab_file)
        require_placeholders(vocabulary, options.cleaning.placeholders)
        return Vocabularies(vocabulary, None, compared)
    words: dict[str, int] = {}
    distinct = running = 0
    for group in word_groups:
        words.update(group.words)
        distinct += group.distinct
        running += group.running
    if not running:
        raise SourceError(
            "the training split has no words to learn a vocabulary from; give files with text, check any "
            "rejected/*.jsonl in the output directory, or lower --validation_fraction"
        )
    placeholders = options.cleaning.placeholders
    tokens = learn_vocabulary(words, options.vocab_size, options.num_unused, options.alphabet_limit, placeholders)
    learned_from = {
        "words": running,
        "words_excluded": running - sum(words.values()),
        "distinct_words": distinct,
        "distinct_words_excluded": distinct - len(words),
    }
    alphabet = alphabet_losses(words, options.alphabet_limit)
    return Vocabularies(Vocabulary.of_tokens(tokens), learned_from, compared, alphabet)


def _read(path: str) -> Vocabulary:
    return Vocabulary.from_bytes(read_bytes(path), path)


def measure_group(counts: GroupCounts, vocabularies: Vocabularies) -> tuple[Coverage, Coverage]:
    """Return the coverage of a group of validation words by the vocabulary and by the one to compare with."""
    word_counts, dropped = counts
    # Shards of validation text drop only words of more than 200 characters.
    too_long = Coverage(words=dropped, unknown=dropped, tokens=dropped)
    compared = vocabularies.compared
    return (
        coverage(word_counts, vocabularies.vocab.ids) + too_long,
        coverage(word_counts, compared.ids) + too_long if compared else Coverage(),
    )


def write_vocabulary(
    vocabularies: Vocabularies, coverages: Iterable[tuple[Coverage, Coverage]], path: str, mark: str = ""
) -> dict[str, Any]:
    """Write the vocabulary file and return "vocab" of `corpus.json`.

    Raises:
        DatasetError: the file `mark` is missing, because the directory was deleted and possibly replaced.
    """
    if mark and not FileSystems.exists(mark):
        raise DatasetError(f"{mark} was removed while the command ran; run the same command again")
    own = other = Coverage()
    for measured in coverages:
        own, other = own + measured[0], other + measured[1]
    validation = {"vocab": dataclasses.asdict(own)}
    if vocabularies.compared:
        validation["compare_vocab"] = dataclasses.asdict(other)
    with write_atomically(path) as file:
        file.write(vocabularies.vocab.to_bytes())
    return {
        "size": len(vocabularies.vocab),
        "sha256": file.sha256,
        "learned_from": vocabularies.learned_from,
        "alphabet": vocabularies.alphabet,
        "validation": validation,
    }


def count_language_words(element: tuple[Group, GroupCounts]) -> tuple[str, int]:
    """Return the language and the running words of a group."""
    (_, language, _), (word_counts, dropped) = element
    return language, sum(word_counts.values()) + dropped


def scale_language_counts(
    element: tuple[Group, GroupCounts], totals: Mapping[str, int], exponent: float
) -> tuple[Group, Batch]:
    """Return the word counts of a group in one language, multiplied by the sampling factor of the language."""
    (split, language, number), (word_counts, dropped) = element
    require_languages(totals, exponent)
    factor = language_factors(totals, exponent)[language]
    counts, dropped = rounded({word: count * factor for word, count in word_counts.items()}, dropped * factor)
    return (split, "", number), (" ".join(counts), list(counts.values()), dropped, 1.0)


@beam.typehints.with_input_types(Batch)
@beam.typehints.with_output_types(GroupCounts)
class MergeWordCounts(beam.CombineFn):
    """Sum the counts of all batches of a word group. The result does not depend on the order of merging.

    The accumulator has the counts by weight. They are multiplied by the weights and rounded at the end, so the result
    does not depend on the number of shards either.
    """

    def create_accumulator(self) -> dict[float, GroupCounts]:
        """Return empty counts."""
        return {}

    def add_input(self, accumulator: dict[float, GroupCounts], batch: Batch) -> dict[float, GroupCounts]:
        """Add the counts of a batch."""
        words, counts, dropped, weight = batch
        return self._add(accumulator, weight, zip(words.split(), counts, strict=True), dropped)

    def merge_accumulators(self, accumulators: Iterable[dict[float, GroupCounts]]) -> dict[float, GroupCounts]:
        """Return the sum of accumulators as a new one."""
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for weight, (counts, dropped) in accumulator.items():
                self._add(merged, weight, counts.items(), dropped)
        return merged

    def extract_output(self, accumulator: dict[float, GroupCounts]) -> GroupCounts:
        """Return the weighted counts."""
        if accumulator.keys() <= {1.0}:
            return accumulator.get(1.0, ({}, 0))
        total: dict[str, float] = {}
        total_dropped = 0.0
        for weight, (counts, dropped) in sorted(accumulator.items()):
            for word, count in counts.items():
                total[word] = total.get(word, 0.0) + weight * count
            total_dropped += weight * dropped
        return rounded(total, total_dropped)

    @staticmethod
    def _add(
        accumulator: dict[float, GroupCounts], weight: float, items: Iterable[tuple[str, int]], dropped: int
    ) -> dict[float, GroupCounts]:
        total, before = accumulator.get(weight, ({}, 0))
        for word, count in items:
            total[word] = total.get(word, 0) + count
        accumulator[weight] = total, before + dropped
        return accumulator


@beam.ptransform_fn
def LearnVocabularies(words: PCollection, options: CorpusOptions) -> Any:
    """Learn the vocabulary from the word counts of shards, or read the given one.

    Args:
        words: results of `word_batches` for all shards.
        options: options of the corpus.

    Returns:
        One `Vocabularies`, and the `Coverage` of both vocabularies for every group of validation words.
    """
    merged = words | "MergeWordCounts" >> beam.CombinePerKey(MergeWordCounts())
    train, validation = (
        merged | f"{split.capitalize()}Words" >> beam.Filter(lambda element, split: element[0][0] == split, split)
        for split in SPLITS
    )
    if options.language_sampling_exponent != 1.0:
        totals = (
            train | "LanguageWords" >> beam.Map(count_language_words) | "AddLanguageWords" >> beam.CombinePerKey(sum)
        )
        train = (
            train
            | "WeighLanguages" >> beam.Map(scale_language_counts, AsDict(totals), options.language_sampling_exponent)
            | "MergeLanguages" >> beam.CombinePerKey(MergeWordCounts())
        )
    train, validation = train | "TrainCounts" >> beam.Values(), validation | "ValidationCounts" >> beam.Values()
    words_of_group = MAX_LEARNER_WORDS // num_word_groups(options.num_partitions)
    kept = train | "PruneWords" >> beam.Map(prune_group, words_of_group, options.min_count)
    start = words.pipeline | "Start" >> beam.Create([None])
    vocabularies = start | "Learn" >> beam.Map(learn_or_read, AsIter(kept), options)
    return vocabularies, validation | "Measure" >> beam.Map(measure_group, AsSingleton(vocabularies))


@beam.ptransform_fn
def WriteVocabulary(words: PCollection, options: CorpusOptions, path: str, mark: str = "") -> PCollection:
    """Write the vocabulary file from the word counts of shards.

    Args:
        words: results of `word_batches` for all shards.
        options: options of the corpus.
        path: vocabulary file to write, on any Beam filesystem.
        mark: file that must exist when the vocabulary is written, or "".

    Returns:
        One element, "vocab" of `corpus.json`: "size" and "sha256" of the file, "learned_from", "alphabet", and
        "validation" with the `Coverage` of both vocabularies.
    """
    vocabularies, coverages = words | "LearnVocabularies" >> LearnVocabularies(options)
    return vocabularies | "Write" >> beam.Map(write_vocabulary, AsIter(coverages), path, mark)


def count_shard_words(split: str, kept: Iterable[Document], options: CorpusOptions) -> Iterator[tuple[Group, Batch]]:
    """Yield the word counts of the documents of one shard."""
    training = split == "train"
    texts: dict[tuple[str, float], list[str]] = {}
    for document in kept:
        language = document.language if training and options.language_sampling_exponent != 1.0 else ""
        # Validation text has no weights.
        text = document.text
        # Placeholders are tokens, not words.
        for placeholder in options.cleaning.placeholders:
            text = text.replace(placeholder, " ")
        texts.setdefault((language, document.weight if training else 1.0), []).append(text)
    groups = num_word_groups(options.num_partitions)
    for (language, weight), language_texts in sorted(texts.items()):
        yield from word_batches(split, language_texts, options, groups, language, weight)


@beam.ptransform_fn
def CountWords(partitions: PCollection, options: CorpusOptions) -> Any:
    """Count the words of partitions, from `GroupByPartition`.

    Returns:
        The outputs `words`, `rejected` ({rule: documents}) and `diacritics` (letters that lose a mark).
    """
    count = _CountWords(options)
    return partitions | beam.ParDo(count).with_outputs(count.REJECTED, count.DIACRITICS, main="words")


@beam.typehints.with_output_types(tuple[Group, Batch])
class _CountWords(beam.DoFn):
    REJECTED, DIACRITICS = "rejected", "diacritics"

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options

    def setup(self) -> None:
        require_same_rules(self._options.character_rules, "the machine that started the job")

    def process(self, element: tuple[Partition, Grouped]) -> Iterator[Any]:
        (split, _), _ = element
        deduplicated = deduplicate_partition(element)
        rejected = Counter(document.rejected for document in deduplicated.rejected)
        yield beam.pvalue.TaggedOutput(self.REJECTED, dict(rejected))
        yield from count_shard_words(split, deduplicated.kept, self._options)
        strips = WordRules.of(self._options).strips_accents
        diacritics = count_marks(document.text for document in deduplicated.kept) if strips else MarkCounts()
        yield beam.pvalue.TaggedOutput(self.DIACRITICS, diacritics)


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(Vocabulary)
class LearnWordPieceVocabulary(beam.PTransform):
    """Learn a WordPiece vocabulary from segmented documents, as one element.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["the cat and the hat"])]) | SegmentSentences()
    ...     vocabulary = documents | LearnWordPieceVocabulary(20, validation_fraction=0)
    ...     _ = vocabulary | beam.Map(lambda vocabulary: print(len(vocabulary), "the" in vocabulary.ids))
    20 True

    Args:
        size: number of tokens.
        **options: fields of `CorpusOptions` that concern words and partitions: do_lower_case, strip_accents,
            tokenize_chinese_chars, num_unused, alphabet_limit, min_count, and num_partitions and validation_fraction,
            which must be those of `CreatePretrainingExamples`. Where partitions have more than 100,000 distinct words
            each, the vocabulary depends on their number.

    Raises:
        SourceError: a value is invalid.
    """

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self._options = corpus_options(vocab_size=size, **options)

    def expand(self, documents: PCollection) -> PCollection:
        """Return one `beambert.tokenizer.vocabulary.Vocabulary`."""
        transforms = (applied.transform for applied in upstream_of(documents))
        cleaning = (
            transform.step.keywords["options"] for transform in transforms if isinstance(transform, CleanDocuments)
        )
        # They state which placeholders the text has.
        options = dataclasses.replace(self._options, cleaning=next(cleaning, self._options.cleaning))
        words = (group_documents(documents, options) | "CountWords" >> CountWords(options)).words
        vocabularies, _ = words | "LearnVocabularies" >> LearnVocabularies(options)
        return vocabularies | "Vocabulary" >> beam.Map(_with_options, options)


def _with_options(vocabularies: Vocabularies, options: CorpusOptions) -> Vocabulary:
    """Return the vocabulary with the options that its examples must equal."""
    names = [field.name for field in dataclasses.fields(WordRules)] + ["num_partitions", "validation_fraction"]
    learned_with = {name: getattr(options, name) for name in names}
    return dataclasses.replace(vocabularies.vocab, learned_with=learned_with)


def build_vocabulary(
    pipeline: beam.Pipeline, splits: list[FileSplit], options: CorpusOptions, output: str, report: str, work: str = ""
) -> PCollection:
    """Write only the vocabulary of a corpus, with the same bytes.

    Args:
        pipeline: the pipeline.
        splits: file splits to read, from `split_inputs`.
        options: options of the corpus.
        output: the vocabulary file, on any Beam filesystem.
        report: JSON file for the fields "vocab", "documents_rejected" and "diacritics" of `corpus.json`.
        work: work directory, from which a killed job resumes, for a runner that shuffles in memory; "" for others.

    Returns:
        One element, after the files are written.
    """
    read = pipeline | "FileSplits" >> beam.Create(splits) | "ReadBlocks" >> ReadBlocks(options, work)
    counts = read.blocks | "GroupByPartition" >> GroupByPartition(options) | "CountWords" >> CountWords(options)
    vocab = counts.words | "WriteVocabulary" >> WriteVocabulary(options, output)
    return vocab | "Report" >> beam.Map(
        _write_summary, AsIter(counts.rejected), AsIter(counts.diacritics), WordRules.of(options), report
    )


def _write_summary(
    vocab: dict[str, Any],
    rejected: Iterable[dict[str, int]],
    marks: Iterable[MarkCounts],
    word_rules: WordRules,
    path: str,
) -> None:
    diacritics = add_marks(marks, word_rules)
    content = {"vocab": vocab, "documents_rejected": sum_counts(rejected), "diacritics": diacritics}
    write_text(path, json.dumps(content))
