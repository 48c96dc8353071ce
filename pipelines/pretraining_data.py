"""Job 2: a corpus's parts and a vocabulary -> tokens -> pairs -> masks -> shards, report.html, dataset.json last.

This file only composes; rules live in `shards.py` and what it calls. A part is a bucket.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines import dataset, overlap
from pipelines.corpus_files import Corpus, Part
from pipelines.dataset import Dataset, DatasetError, Shard
from pipelines.overlap import FindHeldOut, Overlap
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.report import FILE_NAME as REPORT_FILE_NAME
from pipelines.report import Report, read_samples, render
from pipelines.report_warnings import warnings_of
from pipelines.shards import SPLITS, duplicates_of, tokenize_part, write_shards
from pipelines.statistics import Statistics, total
from pipelines.versions import require_same_rules, versions
from pipelines.writing import read_bytes, write_text
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
            shards, statistics = write_shards(documents, part, duplicate, self._output, self._vocab, self._options)
            if duplicate == 0:
                statistics.add_text(documents, self._vocab)
            yield part.split, shards, statistics


class WriteManifest(beam.DoFn):
    """Every shard is on disk: writes report.html, then dataset.json."""

    def __init__(
        self,
        corpus_directory: str,
        output: str,
        options: PretrainingDataOptions,
        recorded_options: dict[str, Any],
        corpus: Corpus,
        vocab: dict[str, Any],
    ) -> None:
        self._corpus_directory = corpus_directory
        self._output = output
        self._options = options
        self._recorded_options = recorded_options
        self._corpus = corpus
        self._vocab = vocab

    def process(
        self,
        _: None,
        shards: Iterable[list[Shard]],
        statistics: dict[str, Statistics],
        found: tuple[np.ndarray, np.ndarray],
    ) -> Iterator[str]:
        """Writes both and yields the manifest's path."""
        by_split = {split: statistics.get(split, Statistics()) for split in SPLITS}
        if not by_split["train"].instances:
            raise DatasetError("the corpus gives no training instance: its documents are too short; add longer ones")
        held_out = overlap.read_held_out(self._corpus_directory, self._corpus.parts)
        common = Overlap(len(held_out.documents), len(found[0]), len(held_out.sentences), len(found[1]))
        warnings = warnings_of(by_split, self._corpus.counts, common, self._options)
        manifest = Dataset(
            max_seq_length=self._options.max_seq_length,
            max_predictions_per_seq=self._options.max_predictions_per_seq,
            instances_per_row=self._options.instances_per_row,
            features=self._options.names_of_features(),
            file_format=self._options.format,
            compression=self._options.compression,
            ragged=self._options.ragged,
            vocab_size=self._vocab["size"],
            vocab_sha256=self._vocab["sha256"],
            do_lower_case=self._options.do_lower_case,
            options=self._recorded_options,
            counts={
                **self._corpus.counts,
                **{split: by_split[split].numbers() for split in SPLITS},
                "overlap": common._asdict(),
                "warnings": warnings,
            },
            shards=sorted((shard for written in shards for shard in written), key=lambda shard: shard.name),
            versions=versions(),
        )
        vocab_path = f"{self._output}/{dataset.VOCAB_FILE_NAME}"
        vocab = Vocabulary.from_bytes(read_bytes(vocab_path), vocab_path)
        largest = max(manifest.shards_of("train"), key=lambda shard: shard.examples)
        samples = read_samples(f"{self._output}/{largest.name}", vocab)
        report = Report(manifest, self._options, by_split, self._corpus.options, vocab.pieces, samples)
        write_text(f"{self._output}/{REPORT_FILE_NAME}", render(report))
        path = f"{self._output}/{dataset.FILE_NAME}"
        write_text(path, manifest.to_json())
        yield path


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
