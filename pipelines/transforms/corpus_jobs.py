"""Compose the transforms of this package to the jobs of the commands `corpus` and `vocab`."""

import json
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection

from beambert.common.word_rules import WordRules
from beambert.pipelines.corpus.counts import add_marks, sum_counts
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.io.atomic_files import write_text
from beambert.pipelines.sources.readers import FileSplit
from beambert.pipelines.transforms.corpora import write_blocks
from beambert.pipelines.transforms.documents import ReadBlocks
from beambert.pipelines.transforms.partitions import GroupByPartition
from beambert.pipelines.transforms.vocabulary import CountWords, WriteVocabulary
from beambert.tokenizer.lost_marks import MarkCounts


def build_corpus(
    pipeline: beam.Pipeline,
    splits: list[FileSplit],
    files: list[list[Any]],
    options: CorpusOptions,
    output: str,
    work: str = "",
) -> PCollection:
    """Read files and write a corpus, as `ReadDocuments`, `corpus_transforms` and `WriteCorpus` do.

    Args:
        pipeline: the pipeline.
        splits: file splits to read, from `split_inputs`.
        files: [path, bytes, time of last change, ...] of every file that the result depends on, for the manifest.
        options: options of the corpus.
        output: the corpus directory, on any Beam filesystem.
        work: work directory, from which a killed job resumes, for a runner that shuffles in memory; "" for others.

    Returns:
        The path of `corpus.json`.
    """
    read = pipeline | "FileSplits" >> beam.Create(splits) | "ReadBlocks" >> ReadBlocks(options, work)
    return write_blocks(read.blocks, read.documents_read, read.losses, files, options, output, work)


def build_vocabulary(
    pipeline: beam.Pipeline, splits: list[FileSplit], options: CorpusOptions, output: str, report: str, work: str = ""
) -> PCollection:
    """Write only the vocabulary of a corpus, with the same bytes.

    Args:
        pipeline, splits, options, work: as for `build_corpus`.
        output: the vocabulary file, on any Beam filesystem.
        report: JSON file for the fields "vocab", "documents_rejected" and "diacritics" of `corpus.json`.

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
