"""Transforms that compare all documents of a corpus: deduplication, vocabulary, and the corpus on disk."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection

from beambert.common.word_rules import WordRules
from beambert.pipelines.build_corpus import count_partitions, write_corpus
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus import document_steps as steps
from beambert.pipelines.corpus.block_buffer import ToBlocks
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.corpus.deduplication_transforms import Grouped, group_by_partition
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.corpus.write_shards import deduplicate
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import OutputError, SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.output_directory import listed
from beambert.pipelines.runner.job_output import absolute, entries_in
from beambert.pipelines.vocabulary.learn_vocabulary import Vocabularies, learn_vocabularies
from beambert.pipelines.vocabulary.word_groups import num_word_groups
from beambert.tokenizer.normalization import CHARACTER_RULES
from beambert.tokenizer.vocabulary import Vocabulary

# As for `beambert corpus`: enough for several workers, and about 1 GiB of text in partitions of 64 MiB.
NUM_PARTITIONS = 16
VALIDATION_FRACTION = 0.02
DEFAULTS = CorpusOptions(
    do_lower_case=True,
    vocab_size=0,
    vocab_file="",
    num_unused=0,
    alphabet_limit=1000,
    min_count=1,
    compare_vocab="",
    language_sampling_exponent=1.0,
    character_rules=CHARACTER_RULES,
    read=ReadOptions(),
    language="en",
    segmenter="rules",
    truncation_noise=0.0,
    num_partitions=NUM_PARTITIONS,
    validation_fraction=VALIDATION_FRACTION,
)


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(Document)
class DeduplicateDocuments(beam.PTransform):
    """Reject segmented documents with the same text as another one, and optionally near-duplicates.

    Of equal documents, the one with the largest weight is kept, then the first by title and source. Paragraphs of the
    returned documents are their sentences joined by spaces. `WriteCorpus` and `CreatePretrainingExamples` reject equal
    documents in any case.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A text."], title) for title in ("b", "a")])
    ...     found = documents | SegmentSentences() | DeduplicateDocuments()
    ...     _ = found | beam.Map(lambda document: print(document.title, document.rejected or "kept"))
    b duplicate
    a kept

    Args:
        near: whether to reject documents that share most of their text with another one.
        repeated_paragraphs: whether to drop paragraphs that also occur in another document.
        num_partitions: number of groups of documents; a group is held in memory. It does not change the result.
    """

    def __init__(
        self, near: bool = False, *, repeated_paragraphs: bool = False, num_partitions: int = NUM_PARTITIONS
    ) -> None:
        super().__init__()
        self._options = dataclasses.replace(
            DEFAULTS, near_duplicates=near, repeated_paragraphs=repeated_paragraphs, num_partitions=num_partitions
        )

    def expand(self, documents: PCollection) -> PCollection:
        """Return all documents, some of them rejected."""
        blocks = documents | "ToBlocks" >> beam.ParDo(ToBlocks(self._options))
        return group_by_partition(blocks, self._options) | "Deduplicate" >> beam.FlatMap(_deduplicated)


def _deduplicated(element: tuple[Partition, Grouped]) -> Iterator[Document]:
    result = deduplicate(element[1])
    yield from map(steps.document_of, [*result.rejected, *result.kept])


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
        do_lower_case, strip_accents, tokenize_chinese_chars: rules as for `beambert.tokenizer.Tokenizer`.
        num_partitions: number of partitions. Where they have more than 100,000 distinct words each, the vocabulary
            depends on it.
        validation_fraction: fraction of the documents to learn nothing from, as of `CreatePretrainingExamples`.
        num_unused, alphabet_limit, min_count: as the flags of `beambert corpus`.
    """

    def __init__(
        self,
        size: int,
        *,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        num_partitions: int = NUM_PARTITIONS,
        validation_fraction: float = VALIDATION_FRACTION,
        num_unused: int = 0,
        alphabet_limit: int = 1000,
        min_count: int = 1,
    ) -> None:
        super().__init__()
        self._options = dataclasses.replace(
            DEFAULTS,
            vocab_size=size,
            **dataclasses.asdict(WordRules(do_lower_case, strip_accents, tokenize_chinese_chars)),
            num_partitions=num_partitions,
            validation_fraction=validation_fraction,
            num_unused=num_unused,
            alphabet_limit=alphabet_limit,
            min_count=min_count,
        )

    def expand(self, documents: PCollection) -> PCollection:
        """Return one `beambert.tokenizer.vocabulary.Vocabulary`."""
        blocks = documents | "ToBlocks" >> beam.ParDo(ToBlocks(self._options))
        words = count_partitions(blocks, self._options).words
        start = documents.pipeline | "Start" >> beam.Create([None])
        vocabularies, _ = learn_vocabularies(start, words, self._options, num_word_groups(self._options.num_partitions))
        return vocabularies | "Vocabulary" >> beam.Map(_with_options, self._options)


@dataclasses.dataclass(frozen=True)
class LearnedVocabulary(Vocabulary):
    """A vocabulary with the options that it was learned with, which those of its examples must equal."""

    options: CorpusOptions = dataclasses.field(default=DEFAULTS, compare=False)


def _with_options(vocabularies: Vocabularies, options: CorpusOptions) -> LearnedVocabulary:
    return LearnedVocabulary(vocabularies.vocab.tokens, vocabularies.vocab.origin, options=options)


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(str)
class WriteCorpus(beam.PTransform):
    """Write segmented documents as a corpus, which `beambert pretraining-data` and `ReadCorpus` read.

    The directory gets the files that `beambert corpus` writes: `corpus/*.parquet`, `rejected/*.jsonl`, `vocab.txt`, and
    `corpus.json` last.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} and the hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences() | RejectDocuments()
    ...     _ = documents | WriteCorpus("corpus", vocab_size=40) | beam.Map(lambda path: print(path[-18:]))
    corpus/corpus.json

    Args:
        output: a new or empty directory, on any Beam filesystem.
        vocab_size: size of the vocabulary to learn; 0 with vocab_file.
        vocab_file: vocabulary to use instead, or "".
        near_duplicates, repeated_paragraphs: as for `DeduplicateDocuments`, without a second shuffle.
        do_lower_case, strip_accents, tokenize_chinese_chars: rules of the vocabulary, as for
            `beambert.tokenizer.Tokenizer`.
        language: language to record for rejected documents that state none.
        num_partitions: number of training shards; each must fit in memory.
        validation_fraction: fraction of the documents in the validation split.
        num_unused, alphabet_limit, min_count: as the flags of `beambert corpus`.

    Raises:
        OutputError: when the pipeline runs: the directory has files.
        SourceError: neither or both of vocab_size and vocab_file are given.
    """

    def __init__(
        self,
        output: str,
        *,
        vocab_size: int = 0,
        vocab_file: str = "",
        near_duplicates: bool = False,
        repeated_paragraphs: bool = False,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        language: str = "en",
        num_partitions: int = NUM_PARTITIONS,
        validation_fraction: float = VALIDATION_FRACTION,
        num_unused: int = 0,
        alphabet_limit: int = 1000,
        min_count: int = 1,
    ) -> None:
        super().__init__()
        if bool(vocab_size) == bool(vocab_file):
            raise SourceError("WriteCorpus requires either vocab_size or vocab_file")
        self._output = absolute(output)
        self._options = dataclasses.replace(
            DEFAULTS,
            vocab_size=vocab_size,
            vocab_file=vocab_file and absolute(vocab_file),
            near_duplicates=near_duplicates,
            repeated_paragraphs=repeated_paragraphs,
            **dataclasses.asdict(WordRules(do_lower_case, strip_accents, tokenize_chinese_chars)),
            language=language,
            num_partitions=num_partitions,
            validation_fraction=validation_fraction,
            num_unused=num_unused,
            alphabet_limit=alphabet_limit,
            min_count=min_count,
        )

    def expand(self, documents: PCollection) -> PCollection:
        """Return the path of `corpus.json`."""
        blocks = documents | "ToBlocks" >> beam.ParDo(ToBlocks(self._options))
        blocks = blocks | "NewOutput" >> RequireNewOutput(self._output)
        read = documents | "Count" >> beam.combiners.Count.Globally()
        losses = documents.pipeline | "NoLosses" >> beam.Create([])
        return write_corpus(blocks, read, losses, [], self._options, self._output)


class RequireNewOutput(beam.PTransform):
    """Return the elements, after a check that an output directory is new or empty.

    The check is made when the pipeline runs, so that it can be built again.

    Args:
        output: the directory.

    Raises:
        OutputError: when the pipeline runs: the directory has files.
    """

    def __init__(self, output: str) -> None:
        super().__init__()
        self._output = output

    def expand(self, elements: PCollection) -> PCollection:
        """Return the elements."""
        checked = elements.pipeline | "Output" >> beam.Create([self._output]) | "Check" >> beam.Map(_require_new)
        return elements | "AfterCheck" >> beam.Map(lambda element, _: element, AsSingleton(checked))


def _require_new(output: str) -> str:
    if names := sorted(name for name in entries_in(output) if "/" not in name):
        raise OutputError(f"output {output} contains {listed(names)}; delete it, or give a new or empty directory")
    return output


@beam.typehints.with_output_types(Document)
class ReadCorpus(beam.PTransform):
    """Read the documents of a corpus of `beambert corpus` or `WriteCorpus`; each file is verified by its SHA-256.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} and the hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences()
    ...     _ = documents | WriteCorpus("texts", vocab_size=40)
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | ReadCorpus("texts")
    ...     _ = documents | beam.combiners.Count.Globally() | beam.Map(print)
    9

    Args:
        directory: the corpus, on any Beam filesystem.
        splits: splits to read.

    Raises:
        SourceError: when the pipeline runs: the directory has no corpus, or a file has changed.
    """

    def __init__(self, directory: str, splits: tuple[str, ...] = ("train", "validation")) -> None:
        super().__init__()
        self._directory, self._splits = directory, splits

    def expand(self, pipeline: PBegin) -> PCollection:
        """Return the documents."""
        return (
            pipeline
            | "Directory" >> beam.Create([self._directory])
            | "Shards" >> beam.FlatMap(_list_shards, self._splits)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMapTuple(_read_shard)
        )


def _list_shards(directory: str, splits: tuple[str, ...]) -> list[tuple[str, CorpusReader]]:
    """Return the names of the shards with the reader of the corpus."""
    path = absolute(directory)
    corpus = corpus_manifest.load(path)
    if corpus is None:
        raise SourceError(f"{directory} has no {corpus_manifest.FILE_NAME}; give a directory of beambert corpus")
    reader = CorpusReader.open(path)
    return [(shard.name, reader) for shard in corpus.shards if shard.split in splits]


def _read_shard(name: str, reader: CorpusReader) -> Iterator[Document]:
    """Yield the documents of a shard; the corpus does not record where a paragraph ends."""
    table = reader.read_shard(name, corpus_manifest.SCHEMA.names)
    for row in table.to_pylist():
        yield Document(
            [" ".join(row["sentences"])],
            title=row["title"],
            source=row["source"],
            language=row["language"],
            weight=row["weight"],
            sentences=[row["sentences"]],
            id=row["id"],
        )
