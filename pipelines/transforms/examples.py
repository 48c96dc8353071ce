"""Transforms from documents to pretraining examples and their shards."""

import dataclasses
import logging
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from beambert.common.word_rules import WordRules, without_released_rules
from beambert.pipelines import dataset
from beambert.pipelines.corpus.block_buffer import ToBlocks
from beambert.pipelines.corpus.deduplication_transforms import Grouped, group_by_partition
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.corpus.write_shards import deduplicate
from beambert.pipelines.dataset import SPLITS, PartitionOfSplit, Shard
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import array_record_files
from beambert.pipelines.examples.make_shards import tokenize, write_shards
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples, copies_of
from beambert.pipelines.examples.statistics import Statistics, total
from beambert.pipelines.finish_dataset import finish_dataset
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import list_files, read_bytes, write_atomically
from beambert.pipelines.runner.job_output import absolute
from beambert.pipelines.transforms.corpora import (
    DEFAULTS,
    NUM_PARTITIONS,
    VALIDATION_FRACTION,
    LearnedVocabulary,
    RequireNewOutput,
)
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

_warn = logging.getLogger("beambert").warning

# A vocabulary, its path, or the result of `LearnWordPieceVocabulary`.
AnyVocabulary: TypeAlias = "str | Vocabulary | PCollection"


def _as_singleton(vocabulary: AnyVocabulary, pipeline: beam.Pipeline) -> Any:
    """Return a vocabulary as an argument of a DoFn."""
    if isinstance(vocabulary, str):
        vocabulary = (
            pipeline | "VocabularyFile" >> beam.Create([vocabulary]) | "Vocabulary" >> beam.Map(_read_vocabulary)
        )
    return AsSingleton(vocabulary) if isinstance(vocabulary, PCollection) else vocabulary


def _read_vocabulary(path: str) -> Vocabulary:
    return Vocabulary.from_bytes(read_bytes(absolute(path)), path)


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(PretrainingExamples)
class CreatePretrainingExamples(beam.PTransform):
    """Tokenize segmented documents, sample pairs and mask them: one element per copy of a partition.

    Documents without sentences are left out.
    `PretrainingExamples.rows()` yields the examples of an element as NumPy arrays.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} sat.", "It saw a hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences()
    ...     vocabulary = documents | LearnWordPieceVocabulary(40, num_partitions=1, validation_fraction=0)
    ...     examples = documents | CreatePretrainingExamples(
    ...         vocabulary, PretrainingDataOptions(max_seq_length=32, dupe_factor=1), 1, validation_fraction=0
    ...     )
    ...     rows = examples | beam.FlatMap(lambda copy: copy.rows())
    ...     shapes = rows | beam.Map(lambda row: row["input_ids"].shape)
    ...     _ = shapes | beam.combiners.Count.PerElement() | beam.Map(print)
    ((32,), 16)

    Args:
        vocabulary: a `Vocabulary`, its path, which the workers read, or a collection with one `Vocabulary`.
        options: options of the examples.
        num_partitions: number of training partitions; each is sampled in memory.
        validation_fraction: fraction of the documents in the validation split.
    """

    def __init__(
        self,
        vocabulary: AnyVocabulary,
        options: PretrainingDataOptions | None = None,
        num_partitions: int = NUM_PARTITIONS,
        *,
        validation_fraction: float = VALIDATION_FRACTION,
    ) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._options = options or PretrainingDataOptions()
        self._partitions = dataclasses.replace(
            DEFAULTS, num_partitions=num_partitions, validation_fraction=validation_fraction
        )

    def expand(self, documents: PCollection) -> PCollection:
        """Return the examples."""
        blocks = documents | "ToBlocks" >> beam.ParDo(ToBlocks(self._partitions))
        return group_by_partition(blocks, self._partitions) | "Examples" >> beam.FlatMap(
            _examples_of, _as_singleton(self._vocabulary, documents.pipeline), self._options, self._partitions
        )


def _examples_of(
    element: tuple[Partition, Grouped],
    vocabulary: Vocabulary,
    options: PretrainingDataOptions,
    partitions: CorpusOptions,
) -> Iterator[PretrainingExamples]:
    _require_same_options(vocabulary, options, partitions)
    (split, number), grouped = element
    kept = [record for record in deduplicate(grouped).kept if any(record.paragraphs)]
    if not kept:
        return
    texts = [sentence for record in kept for sentence in record.text.split("\n")]
    sentences = np.array([sum(record.paragraphs) for record in kept], np.int64)
    weights = np.array([record.weight for record in kept])
    tokenizer = Tokenizer(vocabulary, **dataclasses.asdict(WordRules.of(options)))
    languages = [record.language for record in kept]
    documents = tokenize(texts, sentences, weights, languages, split, tokenizer, options)
    place = PartitionOfSplit(split, number, partitions.num_partitions_of(split))
    for copy in range(copies_of(split, options)):
        yield PretrainingExamples(documents, place, copy, tokenizer, options)


def _require_same_options(vocabulary: Vocabulary, options: PretrainingDataOptions, partitions: CorpusOptions) -> None:
    """Check that a learned vocabulary has the word rules and the partitions of the examples.

    Raises:
        DatasetError: an option differs.
    """
    if not isinstance(vocabulary, LearnedVocabulary):
        return
    learned = vocabulary.options
    rules, own_rules = (dataclasses.asdict(WordRules.of(each)) for each in (learned, options))
    pairs = [(name, rules[name], own_rules[name]) for name in rules]
    for name in ("num_partitions", "validation_fraction"):
        pairs.append((name, getattr(learned, name), getattr(partitions, name)))
    for name, of_vocabulary, of_examples in pairs:
        if of_vocabulary != of_examples:
            raise DatasetError(
                f"the vocabulary was learned with {name}={of_vocabulary}, but the examples have {of_examples}; give "
                "LearnWordPieceVocabulary and CreatePretrainingExamples the same value"
            )


class _Written(NamedTuple):
    """The shards of one copy of a partition, their statistics and options."""

    split: str
    shards: list[Shard]
    statistics: Statistics
    options: PretrainingDataOptions


@beam.typehints.with_input_types(PretrainingExamples)
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
        vocabulary: the vocabulary of the examples, as for `CreatePretrainingExamples`.
        format: "tfrecord" or another `--format`; None keeps that of the options of the examples.
        **options: other fields of `PretrainingDataOptions` that concern files: compression, feature_names, ragged.

    Raises:
        OutputError: when the pipeline runs: the directory has files.
        DatasetError: an option is invalid or the package of the format is not installed; when the pipeline runs: there
            is no training example, the examples have another vocabulary, or another pipeline has written shards there.
    """

    def __init__(self, output: str, vocabulary: AnyVocabulary, format: str | None = None, **options: Any) -> None:
        super().__init__()
        unknown = options.keys() - {"compression", "feature_names", "ragged"}
        if unknown:
            raise DatasetError(f"WriteShards has no option {sorted(unknown)[0]}; give it to CreatePretrainingExamples")
        self._output, self._vocabulary = absolute(output), vocabulary
        self._options = options if format is None else {"format": format, **options}
        PretrainingDataOptions(**self._options)
        if format == "array_record":
            array_record_files.require_package()

    def expand(self, examples: PCollection) -> PCollection:
        """Return the path of `dataset.json`."""
        vocabulary = _as_singleton(self._vocabulary, examples.pipeline)
        examples = examples | "NewOutput" >> RequireNewOutput(self._output)
        written = examples | "WriteShards" >> beam.ParDo(_WriteShards(self._output, self._options), vocabulary)
        return (
            examples.pipeline
            | "Start" >> beam.Create([self._output])
            | "Manifest" >> beam.Map(_finish, AsIter(written), vocabulary)
        )


class _WriteShards(beam.DoFn):
    _EXAMPLES = Metrics.counter("beambert", "examples_written")

    def __init__(self, output: str, options: dict[str, Any]) -> None:
        self._output, self._options = output, options

    def process(self, examples: PretrainingExamples, vocabulary: Vocabulary) -> Iterator[_Written]:
        """Write the shards of one copy of a partition.

        Raises:
            DatasetError: the examples have another vocabulary.
        """
        if examples.tokenizer.vocabulary.sha256 != vocabulary.sha256:
            raise DatasetError(
                f"{vocabulary.origin} is not the vocabulary of the examples (its SHA-256 differs; it has "
                f"{len(vocabulary):,} tokens, that of the examples has {len(examples.tokenizer.vocabulary):,}); give "
                "WriteShards the vocabulary of CreatePretrainingExamples"
            )
        examples = dataclasses.replace(examples, options=dataclasses.replace(examples.options, **self._options))
        shards, statistics = write_shards(examples, self._output)
        if examples.copy == 0:
            statistics.add_text(examples.documents, examples.tokenizer.vocabulary)
        self._EXAMPLES.inc(sum(shard.examples for shard in shards))
        yield _Written(examples.place.split, shards, statistics, examples.options)


def _finish(output: str, written: Iterable[_Written], vocabulary: Vocabulary) -> str:
    """Write vocab.txt, then finish the dataset, after all shards are written."""
    results = list(written)
    if not results:
        raise DatasetError("there are no training instances: the documents are too short; add longer documents")
    options = results[0].options
    if any(each.options != options for each in results):
        raise DatasetError("the examples have different options; write them into different directories")
    with write_atomically(f"{output}/{dataset.VOCAB_FILE_NAME}") as file:
        file.write(vocabulary.to_bytes())
    recorded_options = {
        **without_released_rules({**dataclasses.asdict(options), **dataclasses.asdict(WordRules.of(options))}),
        "length_bins": list(options.length_bins),
        "vocab_sha256": vocabulary.sha256,
    }
    shards = [shard for each in results for shard in each.shards]
    files = {metadata.path.removeprefix(f"{output}/") for metadata in list_files(f"{output}/shards/*")}
    if others := sorted(name for name in files - {shard.name for shard in shards} if not name.endswith(".tmp")):
        raise DatasetError(f"{output} has shards of another pipeline, such as {others[0]}; write into a new directory")
    statistics = {split: total([each.statistics for each in results if each.split == split]) for split in SPLITS}
    manifest = finish_dataset(output, options, recorded_options, vocabulary, shards, statistics)
    for warning in manifest.counts["warnings"]:
        _warn(warning)
    return f"{output}/{dataset.FILE_NAME}"
