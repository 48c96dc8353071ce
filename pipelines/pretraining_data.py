"""Job 2: a corpus's parts and a vocabulary -> tokens -> pairs -> masks -> shards, report.html, dataset.json last.

This file only composes; rules live in `shards.py` and what it calls. A part is a bucket.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from pipelines import dataset, overlap
from pipelines.corpus_files import Corpus, Part
from pipelines.dataset import Shard
from pipelines.finishing import WriteManifest
from pipelines.overlap import FindHeldOut
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.shards import duplicates_of, tokenize_part, write_shards
from pipelines.statistics import Statistics, total
from pipelines.versions import require_same_rules
from pipelines.writing import read_bytes
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary


class WriteShards(beam.DoFn):
    """Part -> the shard files of each duplicate; yields (split, shards, statistics)."""

    def __init__(self, corpus: str, output: str, options: PretrainingDataOptions) -> None:
        self._corpus = corpus
        self._output = output
        self._options = options

    def setup(self) -> None:
        """Loads the vocabulary, once a worker thread."""
        require_same_rules(self._options.character_rules, "the machine that started the job")
        path = f"{self._output}/{dataset.VOCAB_FILE_NAME}"
        self._vocab = Vocabulary.from_bytes(read_bytes(path), path)
        self._tokenizer = Tokenizer(self._vocab, self._options.do_lower_case)

    def process(self, part: Part) -> Iterator[tuple[str, list[Shard], Statistics]]:
        """Tokenises one part and writes its shards."""
        documents = tokenize_part(f"{self._corpus}/{part.name}", part.split, self._tokenizer, self._options)
        for duplicate in range(duplicates_of(part.split, self._options)):
            shards, statistics = write_shards(documents, part, duplicate, self._output, self._tokenizer, self._options)
            if duplicate == 0:
                statistics.add_text(documents, self._vocab)
            yield part.split, shards, statistics


def build_pretraining_data(
    pipeline: beam.Pipeline,
    corpus: Corpus,
    corpus_directory: str,
    options: PretrainingDataOptions,
    recorded_options: dict[str, Any],
    vocab: dict[str, Any],
    output: str,
) -> None:
    """Composes job 2.

    Args:
        pipeline: to add the steps to.
        corpus: the manifest of job 1.
        corpus_directory: where it lies.
        options: what to do.
        recorded_options: what `dataset.json` is to say of options: these and the corpus's.
        vocab: "size" and "sha256" of vocab.txt, which lies in `output` already.
        output: the dataset directory, on any Beam filesystem.
    """
    parts = pipeline | "Parts" >> beam.Create(corpus.parts) | "Spread" >> beam.Reshuffle()
    written = parts | "WriteShards" >> beam.ParDo(WriteShards(corpus_directory, output, options))
    statistics = (
        written
        | "StatisticsOfSplit" >> beam.MapTuple(lambda split, _, statistics: (split, statistics))
        | "SumStatistics" >> beam.CombinePerKey(total)
    )
    found = (
        parts
        | "FindHeldOut" >> beam.ParDo(FindHeldOut(corpus_directory, corpus.parts))
        | "UnionOfFound" >> beam.CombineGlobally(overlap.union)
    )
    _ = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Manifest"
        >> beam.ParDo(
            WriteManifest(corpus_directory, output, options, recorded_options, corpus, vocab),
            shards=beam.pvalue.AsIter(written | "Shards" >> beam.MapTuple(lambda _, shards, __: shards)),
            statistics=beam.pvalue.AsDict(statistics),
            found=beam.pvalue.AsSingleton(found),
        )
    )
