"""Compose job 2: a corpus and a vocabulary -> tokens -> pairs -> masks -> shards, report.html and dataset.json.

The rules are in `examples/make_shards.py` and the modules that it calls; the work items are in
`examples/work_items.py`. A shard of the corpus is a partition.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics

from beambert.common.word_rules import WordRules
from beambert.pipelines import dataset
from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusShard
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.dataset import Dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples import array_record_files, train_eval_overlap
from beambert.pipelines.examples.make_shards import tokenize_shard, write_shards
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples
from beambert.pipelines.examples.statistics import total
from beambert.pipelines.examples.train_eval_overlap import FindOverlap
from beambert.pipelines.examples.work_items import (
    ShardResult,
    WorkItem,
    completion_marker_name,
    find_finished,
    write_completion_marker,
)
from beambert.pipelines.finish_dataset import WriteManifest
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import read_bytes
from beambert.pipelines.io.live_counts import READING, WorkCounter
from beambert.pipelines.io.versions import require_same_rules, versions
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary


class WriteShards(beam.DoFn):
    """Write the shards of a `WorkItem`, and yield a `ShardResult` per copy.

    Args:
        corpus: Reader of the corpus.
        output: Parent directory of `shards/`.
        vocab_file: Path of the vocabulary.
        options: Options of the job.
        work: Directory of completion markers, or "".
    """

    _EXAMPLES = Metrics.counter("beambert", "examples_written")

    def __init__(
        self, corpus: CorpusReader, output: str, vocab_file: str, options: PretrainingDataOptions, work: str
    ) -> None:
        self._corpus = corpus
        self._output = output
        self._vocab_file = vocab_file
        self._options = options
        self._work = work

    def setup(self) -> None:
        """Load the vocabulary, once per worker thread."""
        require_same_rules(self._options.character_rules, "the machine that started the job")
        if self._options.format == "array_record":
            array_record_files.require_package()
        self._vocab = Vocabulary.from_bytes(read_bytes(self._vocab_file), self._vocab_file)
        self._tokenizer = Tokenizer(self._vocab, **dataclasses.asdict(WordRules.of(self._options)))

    def process(self, work_item: WorkItem) -> Iterator[ShardResult]:
        """Write the shards of the copies that are not finished yet, and tokenize the corpus shard once."""
        corpus_shard, documents = work_item.corpus_shard, None
        for copy in work_item.copies:
            marker = f"{self._work}/{completion_marker_name(corpus_shard, copy)}"
            finished = find_finished(marker, self._output) if self._work else None
            counter = WorkCounter(READING, corpus_shard.bytes)
            if finished is None:
                if documents is None:
                    documents = tokenize_shard(self._corpus, corpus_shard, self._tokenizer, self._options)
                examples = PretrainingExamples(documents, corpus_shard.place, copy, self._tokenizer, self._options)
                shards, statistics = write_shards(examples, self._output, counter)
                if copy == 0:
                    statistics.add_text(documents, self._vocab)
                finished = ShardResult(corpus_shard.split, shards, statistics)
                if self._work:
                    write_completion_marker(marker, finished)
            examples_written = sum(shard.examples for shard in finished.shards)
            counter.finish(examples_written)
            self._EXAMPLES.inc(examples_written)
            yield finished


class RestoreShards(beam.DoFn):
    """Move rebuilt shards to the places of missing ones, and yield their names.

    Args:
        rebuilt: The directory of the rebuilt shards.
        manifest: Manifest of the dataset.
        output: Directory of the dataset.
        missing: Names of the missing shards.
    """

    def __init__(self, rebuilt: str, manifest: Dataset, output: str, missing: frozenset[str]) -> None:
        self._rebuilt = rebuilt
        self._recorded = {shard.name: shard for shard in manifest.shards}
        self._versions = manifest.versions
        self._file_format = manifest.file_format
        self._output = output
        self._missing = missing

    def process(self, finished: ShardResult) -> Iterator[str]:
        """Move the missing shards of one copy. Raise DatasetError if they differ from the manifest."""
        for shard in finished.shards:
            recorded = self._recorded.get(shard.name)
            if recorded is None or shard.name not in self._missing:
                continue
            if shard.sha256 != recorded.sha256:
                here = versions(self._file_format)
                differences = [
                    f"{n} {v} recorded, {here.get(n)} installed" for n, v in self._versions.items() if here.get(n) != v
                ]
                raise DatasetError(
                    f"{shard.name} was rebuilt, but its checksum differs from {self._output}/{dataset.FILE_NAME} "
                    f"({', '.join(differences) or 'with the same versions'}); delete that directory and build it again"
                )
            FileSystems.rename([f"{self._rebuilt}/{shard.name}"], [f"{self._output}/{shard.name}"])
            yield shard.name


def build_pretraining_data(
    pipeline: beam.Pipeline,
    corpus: Corpus,
    reader: CorpusReader,
    work_items: list[WorkItem],
    options: PretrainingDataOptions,
    recorded_options: dict[str, Any],
    output: str,
    work: str,
) -> None:
    """Add the steps of job 2 to a pipeline.

    Args:
        pipeline: The pipeline.
        corpus: Manifest of the corpus.
        reader: Reader of the corpus.
        work_items: All work items, from `beambert.pipelines.examples.work_items.deal_work_items`.
        options: Options of the job.
        recorded_options: The field "options" of `dataset.json`: these options and those of the corpus.
        output: The dataset directory, on any Beam filesystem, with vocab.txt.
        work: Work directory of completion markers, from which a stopped job resumes.
    """
    vocab_file = f"{output}/{dataset.VOCAB_FILE_NAME}"
    written = _write_shards(pipeline, work_items, WriteShards(reader, output, vocab_file, options, work))
    statistics = (
        written
        | "StatisticsOfSplit" >> beam.Map(lambda finished: (finished.split, finished.statistics))
        | "SumStatistics" >> beam.CombinePerKey(total)
    )
    overlap = (
        pipeline
        | "CorpusShards" >> beam.Create([_without_checksum(corpus_shard) for corpus_shard in corpus.shards])
        | "FindOverlap" >> beam.ParDo(FindOverlap(reader, corpus.shards))
        | "UnionOfOverlaps" >> beam.CombineGlobally(train_eval_overlap.union)
    )
    _ = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Manifest"
        >> beam.ParDo(
            WriteManifest(reader, output, options, recorded_options),
            shards=beam.pvalue.AsIter(written | "Shards" >> beam.Map(lambda finished: finished.shards)),
            statistics=beam.pvalue.AsDict(statistics),
            overlap=beam.pvalue.AsSingleton(overlap),
        )
    )


def rebuild_shards(
    pipeline: beam.Pipeline,
    reader: CorpusReader,
    work_items: list[WorkItem],
    options: PretrainingDataOptions,
    manifest: Dataset,
    output: str,
    missing: frozenset[str],
    work: str,
) -> None:
    """Add the steps that repair a complete dataset to a pipeline.

    Args:
        pipeline: The pipeline.
        reader: Reader of the corpus.
        work_items: The work items with missing shards.
        options: Options of the dataset.
        manifest: Manifest of the dataset.
        output: The dataset directory.
        missing: Names of the missing shards.
        work: Directory of the rebuilt shards, so that no file is replaced by a different one.
    """
    vocab_file = f"{output}/{dataset.VOCAB_FILE_NAME}"
    written = _write_shards(pipeline, work_items, WriteShards(reader, work, vocab_file, options, ""))
    _ = written | "RestoreShards" >> beam.ParDo(RestoreShards(work, manifest, output, missing))


def _write_shards(pipeline: beam.Pipeline, work_items: list[WorkItem], write: WriteShards) -> beam.PCollection:
    # Without the reshuffle of Create, which would change the order of the work items.
    return (
        pipeline
        | "WorkItems"
        >> beam.Create(
            [item._replace(corpus_shard=_without_checksum(item.corpus_shard)) for item in work_items], reshuffle=False
        )
        | "Spread" >> beam.Reshuffle()
        | "WriteShards" >> beam.ParDo(write)
    )


def _without_checksum(corpus_shard: CorpusShard) -> CorpusShard:
    """Return a corpus shard without its checksum, most of the size of a large job; `CorpusReader` looks it up."""
    return dataclasses.replace(corpus_shard, sha256="")
