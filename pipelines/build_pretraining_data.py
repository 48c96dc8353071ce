"""Job 2: a corpus and a vocabulary -> tokens -> pairs -> masks -> shards, report.html, dataset.json last.

This file only composes; rules live in `make_shards.py` and what it calls, the work items in `work_items.py`. A shard of
the corpus is a partition.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics

from pipelines import dataset
from pipelines.corpus.corpus_manifest import Corpus, CorpusShard
from pipelines.corpus.corpus_reader import CorpusReader
from pipelines.dataset import Dataset
from pipelines.errors import DatasetError
from pipelines.examples import train_eval_overlap
from pipelines.examples.make_shards import current_name, tokenize_shard, write_shards
from pipelines.examples.statistics import total
from pipelines.examples.train_eval_overlap import FindHeldOut
from pipelines.examples.work_items import ShardResult, WorkItem, find_finished, note_name, write_note
from pipelines.finish_dataset import WriteManifest
from pipelines.instances.options import PretrainingDataOptions
from pipelines.io.atomic_files import read_bytes
from pipelines.io.versions import require_same_rules, versions
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary


class WriteShards(beam.DoFn):
    """Passes over a corpus shard -> the shard files of each; yields `ShardResult`.

    Args:
        corpus: what to read.
        output: where `shards/` is to be.
        vocab_file: the vocabulary.
        options: what to do.
        work: directory to note finished passes in and find them again, or "".
    """

    _SO_FAR = Metrics.counter("beambert", "examples_written")

    def __init__(
        self, corpus: CorpusReader, output: str, vocab_file: str, options: PretrainingDataOptions, work: str
    ) -> None:
        self._corpus = corpus
        self._output = output
        self._vocab_file = vocab_file
        self._options = options
        self._work = work

    def setup(self) -> None:
        """Loads the vocabulary, once a worker thread."""
        require_same_rules(self._options.character_rules, "the machine that started the job")
        self._vocab = Vocabulary.from_bytes(read_bytes(self._vocab_file), self._vocab_file)
        self._tokenizer = Tokenizer(self._vocab, self._options.do_lower_case)

    def process(self, passes: WorkItem) -> Iterator[ShardResult]:
        """Writes the shards of those passes that were not finished before, tokenising the corpus shard once."""
        corpus_shard, documents = passes.corpus_shard, None
        for copy in passes.copies:
            note = f"{self._work}/{note_name(corpus_shard, copy)}"
            finished = find_finished(note, self._output) if self._work else None
            if finished is None:
                if documents is None:
                    documents = tokenize_shard(self._corpus, corpus_shard, self._tokenizer, self._options)
                shards, statistics = write_shards(
                    documents, corpus_shard, copy, self._output, self._tokenizer, self._options
                )
                if copy == 0:
                    statistics.add_text(documents, self._vocab)
                finished = ShardResult(corpus_shard.split, shards, statistics)
                if self._work:
                    write_note(note, finished)
            self._SO_FAR.inc(sum(shard.examples for shard in finished.shards))
            yield finished


class RestoreShards(beam.DoFn):
    """Shards made again elsewhere -> those that the dataset lacks in their place; yields their names.

    Args:
        made: the directory they were made in.
        manifest: of the dataset.
        output: its directory.
        missing: names of the shards that it lacks.
    """

    def __init__(self, made: str, manifest: Dataset, output: str, missing: frozenset[str]) -> None:
        self._made = made
        self._recorded = {current_name(shard.name): shard for shard in manifest.shards}
        self._versions = manifest.versions
        self._output = output
        self._missing = missing

    def process(self, finished: ShardResult) -> Iterator[str]:
        """Moves the missing ones of one pass. Raises DatasetError if they are not what they were."""
        for shard in finished.shards:
            recorded = self._recorded.get(shard.name)
            if recorded is None or recorded.name not in self._missing:
                continue
            if shard.sha256 != recorded.sha256:
                here = versions()
                others = [f"{n} {v} then, {here.get(n)} now" for n, v in self._versions.items() if here.get(n) != v]
                raise DatasetError(
                    f"{recorded.name} made again is another file than {self._output}/{dataset.FILE_NAME} says "
                    f"({', '.join(others) or 'with the same versions'}); delete that directory and build it again"
                )
            FileSystems.rename([f"{self._made}/{shard.name}"], [f"{self._output}/{recorded.name}"])
            yield recorded.name


def build_pretraining_data(
    pipeline: beam.Pipeline,
    corpus: Corpus,
    reader: CorpusReader,
    passes: list[WorkItem],
    options: PretrainingDataOptions,
    recorded_options: dict[str, Any],
    vocab: dict[str, Any],
    output: str,
    work: str,
) -> None:
    """Composes job 2.

    Args:
        pipeline: to add the steps to.
        corpus: the manifest of job 1.
        reader: of its files.
        passes: all of them, from `pipelines.examples.work_items.deal_passes`.
        options: what to do.
        recorded_options: what `dataset.json` is to say of options: these and the corpus's.
        vocab: "size" and "sha256" of vocab.txt, which lies in `output` already.
        output: the dataset directory, on any Beam filesystem.
        work: directory for notes of what is finished, where a job that was stopped goes on from.
    """
    vocab_file = f"{output}/{dataset.VOCAB_FILE_NAME}"
    written = _write_shards(pipeline, passes, WriteShards(reader, output, vocab_file, options, work))
    statistics = (
        written
        | "StatisticsOfSplit" >> beam.Map(lambda finished: (finished.split, finished.statistics))
        | "SumStatistics" >> beam.CombinePerKey(total)
    )
    found = (
        pipeline
        | "CorpusShards" >> beam.Create([_to_send(corpus_shard) for corpus_shard in corpus.shards])
        | "FindHeldOut" >> beam.ParDo(FindHeldOut(reader, corpus.shards))
        | "UnionOfFound" >> beam.CombineGlobally(train_eval_overlap.union)
    )
    _ = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Manifest"
        >> beam.ParDo(
            WriteManifest(reader, output, options, recorded_options, vocab),
            shards=beam.pvalue.AsIter(written | "Shards" >> beam.Map(lambda finished: finished.shards)),
            statistics=beam.pvalue.AsDict(statistics),
            found=beam.pvalue.AsSingleton(found),
        )
    )


def rebuild_shards(
    pipeline: beam.Pipeline,
    reader: CorpusReader,
    passes: list[WorkItem],
    options: PretrainingDataOptions,
    manifest: Dataset,
    output: str,
    missing: frozenset[str],
    work: str,
) -> None:
    """Composes the repair of a finished dataset.

    Args:
        pipeline: to add the steps to.
        reader: of the corpus's files.
        passes: those whose shards are missing.
        options: what the dataset was made with.
        manifest: what it is to be again.
        output: the dataset directory.
        missing: names of the shards it lacks.
        work: directory to make them in, so that nothing is replaced by what is not the same.
    """
    vocab_file = f"{output}/{dataset.VOCAB_FILE_NAME}"
    made = _write_shards(pipeline, passes, WriteShards(reader, work, vocab_file, options, ""))
    _ = made | "PutBack" >> beam.ParDo(RestoreShards(work, manifest, output, missing))


def _write_shards(pipeline: beam.Pipeline, passes: list[WorkItem], write: WriteShards) -> beam.PCollection:
    # Without the reshuffle inside Create, which would lose the order in which passes are dealt.
    return (
        pipeline
        | "Passes"
        >> beam.Create([each._replace(corpus_shard=_to_send(each.corpus_shard)) for each in passes], reshuffle=False)
        | "Spread" >> beam.Reshuffle()
        | "WriteShards" >> beam.ParDo(write)
    )


def _to_send(corpus_shard: CorpusShard) -> CorpusShard:
    """A corpus shard without its checksum, which would be most of a large job's bytes; `CorpusReader` finds it."""
    return dataclasses.replace(corpus_shard, sha256="")
