"""The jobs of the commands `corpus`, `vocab` and `pretraining-data`, composed of the transforms in this package."""

import json
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter, PBegin, PCollection

from beambert.common.word_rules import WordRules
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.corpus.counts import add_marks, sum_counts
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.dataset import VOCAB_FILE_NAME
from beambert.pipelines.examples.work_items import WorkItem
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import write_text
from beambert.pipelines.sources.file_splits import FileSplit
from beambert.pipelines.transforms.corpora import WriteBlocks
from beambert.pipelines.transforms.documents import ReadBlocks
from beambert.pipelines.transforms.examples import CreateExamplesOfCorpus, WriteShards
from beambert.pipelines.transforms.partitions import GroupByPartition
from beambert.pipelines.transforms.vocabulary import CountWords, WriteVocabulary
from beambert.tokenizer.lost_marks import MarkCounts


class BuildCorpus(beam.PTransform):
    """Read files and write a corpus, as `ReadDocuments`, `corpus_transforms` and `WriteCorpus` do.

    Args:
        splits: file splits to read, from `split_inputs`.
        files: [path, bytes, time of last change, ...] of every file that the result depends on, for the manifest.
        options: options of the corpus.
        output: the corpus directory, on any Beam filesystem.
        work: work directory, from which a killed job resumes, for a runner that shuffles in memory; "" for others.
    """

    def __init__(
        self, splits: list[FileSplit], files: list[list[Any]], options: CorpusOptions, output: str, work: str = ""
    ) -> None:
        super().__init__()
        self._splits, self._files, self._options = splits, files, options
        self._output, self._work = output, work

    def expand(self, pipeline: PBegin) -> PCollection:
        """Return the path of `corpus.json`."""
        read = pipeline | ReadBlocks(self._splits, self._options, self._work)
        return read.blocks | WriteBlocks(
            read.documents_read, read.losses, self._files, self._options, self._output, self._work
        )


class BuildVocabulary(beam.PTransform):
    """Write only the vocabulary of a corpus, with the same bytes.

    Args:
        splits, options, work: as for `BuildCorpus`.
        output: the vocabulary file, on any Beam filesystem.
        report: JSON file for the fields "vocab", "documents_rejected" and "diacritics" of `corpus.json`.
    """

    def __init__(
        self, splits: list[FileSplit], options: CorpusOptions, output: str, report: str, work: str = ""
    ) -> None:
        super().__init__()
        self._splits, self._options = splits, options
        self._output, self._report, self._work = output, report, work

    def expand(self, pipeline: PBegin) -> PCollection:
        """Return one element after the files are written."""
        read = pipeline | ReadBlocks(self._splits, self._options, self._work)
        counts = read.blocks | GroupByPartition(self._options) | CountWords(self._options)
        vocab = counts.words | WriteVocabulary(self._options, self._output)
        rules = WordRules.of(self._options)
        return vocab | "Report" >> beam.Map(
            _write_summary, AsIter(counts.rejected), AsIter(counts.diacritics), rules, self._report
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


class BuildPretrainingData(beam.PTransform):
    """Write the pretraining examples of a corpus.

    Args:
        reader: reader of the corpus.
        work_items: all work items, from `deal_work_items`.
        options: options of the examples.
        output: the dataset directory, on any Beam filesystem, with vocab.txt.
        work: work directory of completion markers, from which a stopped job resumes.
    """

    def __init__(
        self,
        reader: CorpusReader,
        work_items: list[WorkItem],
        options: PretrainingDataOptions,
        output: str,
        work: str,
    ) -> None:
        super().__init__()
        self._reader, self._work_items, self._options = reader, work_items, options
        self._output, self._work = output, work

    def expand(self, pipeline: PBegin) -> PCollection:
        """Return the path of `dataset.json`."""
        vocabulary = f"{self._output}/{VOCAB_FILE_NAME}"
        examples = pipeline | CreateExamplesOfCorpus(self._reader, vocabulary, self._options, self._work_items)
        return examples | WriteShards(self._output, vocabulary, corpus=self._reader, work=self._work)
