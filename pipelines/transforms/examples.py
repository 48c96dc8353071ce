"""Transforms from documents to pretraining examples and their shards."""

import dataclasses
import functools
import json
import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.coders import Coder, registry
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PBegin, PCollection
from apache_beam.runners.worker.statecache import CacheAware
from apache_beam.utils.shared import Shared

from beambert.common.command_line.options import from_mapping
from beambert.common.typed_json import convert
from beambert.common.word_rules import WordRules
from beambert.pipelines import dataset
from beambert.pipelines.corpus.corpus_manifest import CorpusReader
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.dataset import PartitionOfSplit, Shard
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import array_record_files, train_eval_overlap
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples, num_copies
from beambert.pipelines.examples.shards import tokenize_documents, tokenize_shard, write_shards
from beambert.pipelines.examples.statistics import Statistics, total
from beambert.pipelines.examples.train_eval_overlap import ValidationSentences, read_validation_sentences
from beambert.pipelines.examples.work_items import (
    ShardResult,
    WorkItem,
    completion_marker_name,
    find_finished,
    write_completion_marker,
)
from beambert.pipelines.finish_dataset import finish_dataset
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import list_files, read_bytes, write_atomically
from beambert.pipelines.io.job_progress import READING, WorkCounter
from beambert.pipelines.io.versions import require_same_rules
from beambert.pipelines.runner.job_output import absolute
from beambert.pipelines.transforms.directories import RequireNewOutput, open_corpus
from beambert.pipelines.transforms.partitions import (
    DEFAULTS,
    NUM_PARTITIONS,
    Grouped,
    corpus_options,
    deduplicate_partition,
    group_documents,
)
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

_warn = logging.getLogger("beambert").warning

# A vocabulary, its path, or the result of `LearnWordPieceVocabulary`; None for a named input.
AnyVocabulary: TypeAlias = "str | Vocabulary | PCollection | None"


class _ExamplesCoder(Coder):
    """Pickle examples. By default, Beam would also pickle a partition to estimate its size for metrics."""

    def encode(self, examples: PretrainingExamples) -> bytes:
        """Return the bytes of the examples."""
        return pickle.dumps(examples)

    def decode(self, encoded: bytes) -> PretrainingExamples:
        """Return the examples of bytes of another worker."""
        return pickle.loads(encoded)  # noqa: S301

    def estimate_size(self, examples: PretrainingExamples) -> int:
        """Return the size for Beam's metrics."""
        return examples.size


registry.register_coder(PretrainingExamples, _ExamplesCoder)


def _as_reader(corpus: str | CorpusReader, pipeline: beam.Pipeline) -> Any:
    """Return the reader of a corpus as an argument of a DoFn."""
    if isinstance(corpus, CorpusReader):
        return corpus
    return AsSingleton(pipeline | "Corpus" >> beam.Create([corpus]) | "Open" >> beam.Map(open_corpus))


def _as_singleton(vocabulary: AnyVocabulary, pipeline: beam.Pipeline) -> Any:
    """Return a vocabulary as an argument of a DoFn."""
    if isinstance(vocabulary, str):
        vocabulary = (
            pipeline | "VocabularyFile" >> beam.Create([vocabulary]) | "Vocabulary" >> beam.Map(read_vocabulary)
        )
    if isinstance(vocabulary, PCollection) and vocabulary.pipeline is not pipeline:
        raise DatasetError("the vocabulary is of another pipeline; learn it in this one, or give its path")
    return AsSingleton(vocabulary) if isinstance(vocabulary, PCollection) else vocabulary


def _with_vocabulary(
    inputs: PCollection | Mapping[str, PCollection], name: str, vocabulary: AnyVocabulary
) -> tuple[PCollection, Any]:
    """Return the main input and the vocabulary.

    Raises:
        DatasetError: there is no vocabulary, or another input.
    """
    named = inputs if isinstance(inputs, Mapping) else {name: inputs}
    wanted = {name, "vocabulary"} if vocabulary is None else {name}
    if named.keys() != wanted:
        raise DatasetError(
            f"the inputs are {', '.join(sorted(named))}, not {' and '.join(sorted(wanted))}; name them under input, or "
            "give the path of a vocabulary"
        )
    return named[name], named["vocabulary"] if vocabulary is None else vocabulary


class _SideInputVocabulary(Vocabulary, CacheAware):
    """A vocabulary that Beam does not measure token by token before it caches it as a side input."""

    def get_referents_for_cache(self) -> list[Any]:
        return []


def read_vocabulary(path: str) -> Vocabulary:
    """Read a vocabulary on any Beam filesystem."""
    return _SideInputVocabulary.from_bytes(read_bytes(absolute(path)), path)


@beam.typehints.with_output_types(PretrainingExamples)
class CreatePretrainingExamples(beam.PTransform):
    """Tokenize segmented documents, sample pairs and mask them: one element per partition.

    Documents without sentences are left out.
    `PretrainingExamples.rows()` yields the examples of all copies as NumPy arrays.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} sat.", "It saw a hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences()
    ...     vocabulary = documents | LearnWordPieceVocabulary(40, num_partitions=1, validation_fraction=0)
    ...     examples = documents | CreatePretrainingExamples(
    ...         vocabulary, PretrainingDataOptions(max_seq_length=32, dupe_factor=1), 1, validation_fraction=0
    ...     )
    ...     rows = examples | beam.FlatMap(lambda partition: partition.rows())
    ...     shapes = rows | beam.Map(lambda row: row["input_ids"].shape)
    ...     _ = shapes | beam.combiners.Count.PerElement() | beam.Map(print)
    ((32,), 16)

    Args:
        vocabulary: a `Vocabulary`, its path, which the workers read, or a collection with one `Vocabulary`. None if the
            transform is applied to a mapping of the collections "documents" and "vocabulary", as in Beam YAML.
        options: options of the examples, or a mapping of them.
        num_partitions: number of training partitions; each is sampled in memory.
        validation_fraction: fraction of the documents in the validation split.
    """

    def __init__(
        self,
        vocabulary: AnyVocabulary = None,
        options: PretrainingDataOptions | Mapping[str, Any] | None = None,
        num_partitions: int = NUM_PARTITIONS,
        *,
        validation_fraction: float = DEFAULTS.validation_fraction,
    ) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._options = from_mapping(PretrainingDataOptions, options, "options", DatasetError)
        self._partitions = corpus_options(num_partitions=num_partitions, validation_fraction=validation_fraction)

    @beam.typehints.decorators.no_annotations  # Beam warns about a union.
    def expand(self, inputs: PCollection | Mapping[str, PCollection]) -> PCollection:
        """Return the examples."""
        documents, vocabulary = _with_vocabulary(inputs, "documents", self._vocabulary)
        partitions = group_documents(documents, self._partitions)
        vocabulary = _as_singleton(vocabulary, documents.pipeline)
        return partitions | "Examples" >> beam.FlatMap(_create_examples, vocabulary, self._options, self._partitions)


def _create_examples(
    element: tuple[Partition, Grouped],
    vocabulary: Vocabulary,
    options: PretrainingDataOptions,
    partitions: CorpusOptions,
) -> Iterator[PretrainingExamples]:
    _require_same_options(vocabulary, options, partitions)
    split, number = element[0]
    kept = [document for document in deduplicate_partition(element).kept if document.paragraphs]
    if kept:
        yield PretrainingExamples(
            functools.partial(tokenize_documents, kept, split, options),
            PartitionOfSplit(split, number, partitions.num_partitions_of(split)),
            tuple(range(num_copies(split, options))),
            make_tokenizer(vocabulary, options),
            options,
        )


def make_tokenizer(vocabulary: Vocabulary, options: PretrainingDataOptions) -> Tokenizer:
    """Return the tokenizer of the examples.

    Raises:
        DatasetError: this machine has another Unicode version than the one that started the job.
    """
    require_same_rules(options.character_rules, "the machine that started the job")
    return Tokenizer(vocabulary, **dataclasses.asdict(WordRules.of(options)))


def _require_same_options(vocabulary: Vocabulary, options: PretrainingDataOptions, partitions: CorpusOptions) -> None:
    """Check that a learned vocabulary has the word rules and the partitions of the examples.

    Raises:
        DatasetError: an option differs.
    """
    used = {
        **dataclasses.asdict(WordRules.of(options)),
        "num_partitions": partitions.num_partitions,
        "validation_fraction": partitions.validation_fraction,
    }
    for name, learned in vocabulary.learned_with.items():
        if learned != used[name]:
            raise DatasetError(
                f"the vocabulary was learned with {name}={learned}, but the examples have {used[name]}; give "
                "LearnWordPieceVocabulary and CreatePretrainingExamples the same value"
            )


class CreateExamplesOfCorpus(beam.PTransform):
    """Create pretraining examples of a corpus as `CreatePretrainingExamples`, without a shuffle.

    A shard of the corpus is a partition.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} sat.", "It saw a hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences()
    ...     _ = documents | WriteCorpus("cats", vocab_size=40)
    >>> with beam.Pipeline() as pipeline:
    ...     options = PretrainingDataOptions(max_seq_length=32, dupe_factor=1)
    ...     examples = pipeline | CreateExamplesOfCorpus("cats", "cats/vocab.txt", options)
    ...     written = examples | WriteShards("cats-data", "cats/vocab.txt", corpus="cats")
    ...     _ = written | beam.Map(lambda path: print(path[-22:]))
    cats-data/dataset.json

    Args:
        corpus: the directory, on any Beam filesystem.
        vocabulary: as for `CreatePretrainingExamples`.
        options: options of the examples, with the word rules of the corpus, or a mapping of them.
        work_items: copies of corpus shards to create, in an order that balances the load of the workers; None for all.
    """

    def __init__(
        self,
        corpus: str | CorpusReader,
        vocabulary: AnyVocabulary,
        options: PretrainingDataOptions | Mapping[str, Any] | None = None,
        work_items: list[WorkItem] | None = None,
    ) -> None:
        super().__init__()
        self._corpus, self._vocabulary, self._work_items = corpus, vocabulary, work_items
        self._options = from_mapping(PretrainingDataOptions, options, "options", DatasetError)

    def expand(self, pipeline: PBegin) -> PCollection:
        """Return the examples."""
        reader = _as_reader(self._corpus, pipeline.pipeline)
        if self._work_items is None:
            start = pipeline | "Start" >> beam.Create([None])
            items = start | "AllCopies" >> beam.FlatMap(_all_work_items, reader, self._options)
        else:
            # Without the reshuffle of Create, which would change the order of the work items. Without the checksums of
            # the corpus, most of the size of a large job; `CorpusReader` looks them up.
            small = [
                item._replace(corpus_shard=dataclasses.replace(item.corpus_shard, sha256=""))
                for item in self._work_items
            ]
            items = pipeline | "WorkItems" >> beam.Create(small, reshuffle=False)
        vocabulary = _as_singleton(self._vocabulary, pipeline.pipeline)
        return (
            items
            | "Spread" >> beam.Reshuffle()
            | "Examples" >> beam.ParDo(_CreateExamplesOfItem(self._options), reader, vocabulary)
        )


def _all_work_items(_: None, reader: CorpusReader, options: PretrainingDataOptions) -> Iterator[WorkItem]:
    for shard in reader.read_manifest().shards:
        yield WorkItem(shard, tuple(range(num_copies(shard.split, options))))


class _CreateExamplesOfItem(beam.DoFn):
    def __init__(self, options: PretrainingDataOptions) -> None:
        self._options = options
        # One for all items, because it remembers the words and characters that it has seen.
        self._tokenizer: Tokenizer | None = None

    def process(self, item: WorkItem, reader: CorpusReader, vocabulary: Vocabulary) -> Iterator[PretrainingExamples]:
        tokenizer = self._tokenizer = self._tokenizer or make_tokenizer(vocabulary, self._options)
        shard = item.corpus_shard
        load = functools.partial(tokenize_shard, reader, shard, self._options)
        yield PretrainingExamples(load, shard.place, item.copies, tokenizer, self._options, shard.bytes)


@beam.typehints.with_output_types(str)
class WriteShards(beam.PTransform):
    """Write pretraining examples as shards, with `vocab.txt` and `dataset.json`, which `beambert pretrain` reads.

    The shards have the bytes that `beambert build` writes for the same documents and options. `report.html`, a dataset
    card and a Croissant description are beside `dataset.json`. Warnings about the data are logged, and are in all of
    them. The counter `examples_written` has the number of examples.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} sat.", "It saw a hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences()
    ...     vocabulary = documents | LearnWordPieceVocabulary(40)
    ...     examples = documents | CreatePretrainingExamples(vocabulary, PretrainingDataOptions(max_seq_length=32))
    ...     written = examples | WriteShards("data", vocabulary, compression="gzip")
    ...     _ = written | beam.Map(lambda path: print(path[-17:]))
    data/dataset.json

    Args:
        output: a new or empty directory, on any Beam filesystem.
        vocabulary: the vocabulary of the examples, as for `CreatePretrainingExamples`; the mapping has "examples".
        format: "tfrecord" or another `--format`; None keeps that of the options of the examples.
        corpus: directory of the corpus that the documents come from, with which the report also describes the text and
            its removed parts, and the overlap of the validation split with the training text; "" for none.
        compression, feature_names, ragged: as of `PretrainingDataOptions`; None keeps the option of the examples.

    Raises:
        OutputError: when the pipeline runs: the directory has files.
        DatasetError: an option is invalid or the package of the format is not installed; when the pipeline runs: there
            is no training example, the examples have another vocabulary, or another pipeline has written shards there.
    """

    def __init__(
        self,
        output: str,
        vocabulary: AnyVocabulary = None,
        format: str | None = None,
        *,
        corpus: str = "",
        compression: str | None = None,
        feature_names: str | None = None,
        ragged: bool | None = None,
    ) -> None:
        super().__init__()
        self._output, self._vocabulary, self._corpus = absolute(output), vocabulary, corpus
        given = {"format": format, "compression": compression, "feature_names": feature_names, "ragged": ragged}
        self._options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        PretrainingDataOptions(**self._options)
        if format == "array_record":
            array_record_files.require_package()

    @beam.typehints.decorators.no_annotations  # Beam warns about a union.
    def expand(self, inputs: PCollection | Mapping[str, PCollection]) -> PCollection:
        """Return the path of `dataset.json`."""
        examples, vocabulary = _with_vocabulary(inputs, "examples", self._vocabulary)
        examples = examples | "NewOutput" >> RequireNewOutput(self._output)
        return examples | "Dataset" >> WriteDataset(self._output, vocabulary, self._options, self._corpus)


@beam.ptransform_fn
def WriteDataset(
    examples: PCollection,
    output: str,
    vocabulary: AnyVocabulary,
    options: Mapping[str, Any] | None = None,
    corpus: str | CorpusReader = "",
    work: str = "",
) -> PCollection:
    """Write shards, then the files about them.

    Args:
        examples: the examples.
        output: the dataset directory, whose present files are not checked.
        vocabulary, corpus: as for `WriteShards`.
        options: fields of `PretrainingDataOptions` that replace those of the examples.
        work: directory of completion markers of the same corpus, vocabulary and options, or "".

    Returns:
        The path of `dataset.json`.
    """
    pipeline = examples.pipeline
    vocabulary = _as_singleton(vocabulary, pipeline)
    written = examples | "Files" >> WriteShardFiles(output, vocabulary, options, work)
    statistics = (
        written | "StatisticsOfSplit" >> beam.Map(_key_statistics) | "SumStatistics" >> beam.CombinePerKey(total)
    )
    start = pipeline | "Start" >> beam.Create([output])
    reader, overlap = None, None
    if corpus:
        reader = _as_reader(corpus, pipeline)
        overlap = AsSingleton(start | "Overlap" >> _FindOverlap(reader))
    return start | "Manifest" >> beam.Map(
        _finish,
        vocabulary=vocabulary,
        shards=AsIter(written | "Shards" >> beam.FlatMap(_list_shards)),
        statistics=AsDict(statistics),
        reader=reader,
        overlap=overlap,
    )


class WrittenCopy(NamedTuple):
    """The shards of one copy of a partition, and the options of the examples as JSON."""

    result: ShardResult
    options: str


def _key_statistics(copy: WrittenCopy) -> tuple[tuple[str, str], Statistics]:
    return (copy.result.split, copy.options), copy.result.statistics


def _list_shards(copy: WrittenCopy) -> list[Shard]:
    return copy.result.shards


@beam.typehints.with_input_types(PretrainingExamples)
@beam.ptransform_fn
def WriteShardFiles(
    examples: PCollection,
    output: str,
    vocabulary: AnyVocabulary,
    options: Mapping[str, Any] | None = None,
    work: str = "",
) -> PCollection:
    """Write the shards of examples, without a manifest.

    Args:
        examples: the examples.
        output: parent directory of `shards/`.
        vocabulary: the vocabulary of the examples, its path or a side input.
        options: fields of `PretrainingDataOptions` that replace those of the examples.
        work: directory of completion markers, or "".

    Returns:
        A `WrittenCopy` for each copy.
    """
    vocabulary = _as_singleton(vocabulary, examples.pipeline)
    return examples | beam.ParDo(_WriteShardFiles(output, options or {}, work), vocabulary)


@beam.typehints.with_output_types(WrittenCopy)
class _WriteShardFiles(beam.DoFn):
    _EXAMPLES = Metrics.counter("beambert", "examples_written")

    def __init__(self, output: str, options: Mapping[str, Any], work: str = "") -> None:
        self._output, self._options, self._work = output, options, work

    def process(self, examples: PretrainingExamples, vocabulary: Vocabulary) -> Iterator[Any]:
        if examples.tokenizer.vocabulary.sha256 != vocabulary.sha256:
            raise DatasetError(
                f"{vocabulary.origin} is not the vocabulary of the examples (its SHA-256 differs; it has "
                f"{len(vocabulary):,} tokens, that of the examples has {len(examples.tokenizer.vocabulary):,}); give "
                "WriteShards the vocabulary of CreatePretrainingExamples"
            )
        examples = dataclasses.replace(examples, options=dataclasses.replace(examples.options, **self._options))
        if examples.options.format == "array_record":
            array_record_files.require_package()
        recorded = json.dumps(dataclasses.asdict(examples.options), sort_keys=True)
        for copy in examples.copies:
            marker = f"{self._work}/{completion_marker_name(examples.place, copy)}"
            result = find_finished(marker, self._output) if self._work else None
            counter = WorkCounter(READING, examples.size)
            if result is None:
                shards, statistics = write_shards(examples, copy, self._output, counter)
                if copy == 0:
                    statistics.add_text(examples.documents, examples.tokenizer.vocabulary)
                result = ShardResult(examples.place.split, shards, statistics)
                if self._work:
                    write_completion_marker(marker, result)
            examples_written = sum(shard.examples for shard in result.shards)
            counter.finish(examples_written)
            self._EXAMPLES.inc(examples_written)
            yield WrittenCopy(result, recorded)


@beam.ptransform_fn
def _FindOverlap(start: PCollection, reader: Any) -> PCollection:
    """Find the validation sentences of a corpus that occur in its training text: int64 [N], their numbers."""
    return (
        start
        | "TrainingShards" >> beam.FlatMap(_training_shards, reader)
        | "SpreadShards" >> beam.Reshuffle()
        | "Search" >> beam.ParDo(_SearchShard())
        | "Union" >> beam.CombineGlobally(train_eval_overlap.union).without_defaults()
    )


def _training_shards(_: str, reader: CorpusReader) -> list[tuple[CorpusReader, str]]:
    return [(reader, shard.name) for shard in reader.read_manifest().shards if shard.split == "train"]


class _SearchShard(beam.DoFn):
    def __init__(self) -> None:
        # One copy of the validation text for all threads of a process.
        self._shared = Shared()

    def process(self, element: tuple[CorpusReader, str]) -> Iterator[np.ndarray]:
        reader, name = element
        validation = self._shared.acquire(functools.partial(_read_validation, reader), reader.manifest_sha256)
        yield train_eval_overlap.matching_sentences(reader.read_shard(name, ["sentences"]), validation.sentences)


class _Validation:
    """The validation sentences; `Shared` holds only objects with weak references."""

    def __init__(self, sentences: ValidationSentences) -> None:
        self.sentences = sentences


def _read_validation(reader: CorpusReader) -> _Validation:
    return _Validation(read_validation_sentences(reader, reader.read_manifest().shards))


def _finish(
    output: str,
    vocabulary: Vocabulary,
    shards: Iterable[Shard],
    statistics: dict[tuple[str, str], Statistics],
    reader: CorpusReader | None,
    overlap: np.ndarray | None,
) -> str:
    """Write vocab.txt, then finish the dataset, after all shards are written."""
    all_options = {options for _, options in statistics}
    if not all_options:
        raise DatasetError("there are no training instances: the documents are too short; add longer documents")
    if len(all_options) > 1:
        raise DatasetError("the examples have different options; write them into different directories")
    with write_atomically(f"{output}/{dataset.VOCAB_FILE_NAME}") as file:
        file.write(vocabulary.to_bytes())
    shards = list(shards)
    files = {metadata.path.removeprefix(f"{output}/") for metadata in list_files(f"{output}/shards/*-of-*")}
    if others := sorted(name for name in files - {shard.name for shard in shards} if not name.endswith(".tmp")):
        raise DatasetError(f"{output} has shards of another pipeline, such as {others[0]}; write into a new directory")
    corpus, found = None, None
    if reader is not None and overlap is not None:
        # Read here, not part of the job: the manifest of a corpus of terabytes exceeds the size limit of a job.
        corpus = reader.read_manifest()
        found = train_eval_overlap.count_overlap(read_validation_sentences(reader, corpus.shards), overlap)
    manifest = finish_dataset(
        output,
        convert(json.loads(all_options.pop()), PretrainingDataOptions),
        vocabulary,
        shards,
        {split: sums for (split, _), sums in statistics.items()},
        corpus,
        reader.manifest_sha256 if reader else "",
        found,
    )
    for warning in manifest.counts["warnings"]:
        _warn(warning)
    return f"{output}/{dataset.FILE_NAME}"


def build_pretraining_data(
    pipeline: beam.Pipeline,
    reader: CorpusReader,
    work_items: list[WorkItem],
    options: PretrainingDataOptions,
    output: str,
    work: str,
) -> PCollection:
    """Write the pretraining examples of a corpus.

    Args:
        pipeline: the pipeline.
        reader: reader of the corpus.
        work_items: all work items, from `deal_work_items`.
        options: options of the examples.
        output: the dataset directory, on any Beam filesystem, with vocab.txt.
        work: work directory of completion markers, from which a stopped job resumes.

    Returns:
        The path of `dataset.json`.
    """
    path = f"{output}/{dataset.VOCAB_FILE_NAME}"
    vocabulary = pipeline | "VocabularyFile" >> beam.Create([path]) | "Vocabulary" >> beam.Map(read_vocabulary)
    examples = pipeline | CreateExamplesOfCorpus(reader, vocabulary, options, work_items)
    return examples | "WriteDataset" >> WriteDataset(output, vocabulary, corpus=reader, work=work)
