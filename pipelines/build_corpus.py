"""Job 1: files -> documents -> sentences -> buckets -> Parquet parts, word counts and a vocabulary.

This file only composes; rules live in `sources/`, `cleaning.py`, `segmentation.py`, `deduplication.py` and the
`tokenizer` package, the steps in `reading.py`, `deduplication_steps.py`, `parts.py` and `vocabulary.py`. Counts come
from the data that is written, never from Beam's counters, which count retried work twice.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from pipelines.corpus import corpus_manifest
from pipelines.corpus.corpus_manifest import Corpus, Part, sizes_of_corpus
from pipelines.corpus.deduplication_transforms import group_by_partition
from pipelines.corpus.learn_vocabulary import make_vocabulary, num_word_groups, require_languages
from pipelines.corpus.options import CorpusOptions
from pipelines.corpus.reading import FileSplit, ReadSplit
from pipelines.corpus.removed_text import Loss, losses_of_files
from pipelines.corpus.write_shards import CountPart, WritePart
from pipelines.dataset import SPLITS
from pipelines.io.atomic_files import write_text
from pipelines.io.output_directory import WORK_FILE_NAME, WORK_NAME
from pipelines.io.versions import versions
from pipelines.io.written_files import require_written
from pipelines.sources import SourceError
from pipelines.sources.files import require_unchanged
from tokenizer.lost_marks import MarkCounts
from tokenizer.normalization import split_words


class WriteCorpusManifest(beam.DoFn):
    """Everything is on disk: checks that no document got lost, then writes corpus.json."""

    def __init__(self, output: str, options: dict[str, Any], files: list[list[Any]]) -> None:
        self._output = output
        self._options = options
        self._files = files

    def process(
        self,
        _: None,
        written_parts: Iterable[tuple[Part | None, dict[str, Any]]],
        vocab: dict[str, Any],
        read: Iterable[int],
        losses: Iterable[tuple[str, str, bool, Loss]],
    ) -> Iterator[str]:
        """Writes the manifest and yields its path."""
        parts = list(written_parts)
        written = sorted((part for part, _ in parts if part), key=lambda part: part.name)
        counts = total_counts([counts for _, counts in parts], written)
        counts["documents_read"] = sum(read)
        counts["files_mostly_lost"] = losses_of_files(losses)
        documents, rejected = counts["documents"], sum(counts["documents_rejected"].values())
        if sum(documents.values()) + rejected != counts["documents_read"]:
            raise RuntimeError(f"{counts['documents_read']} documents read, but {documents} kept, {rejected} rejected")
        if not documents["train"]:
            raise SourceError(
                f"--input holds no document to train on ({documents['validation']} held out, {rejected} rejected); "
                "give more files, see in rejected/*.jsonl of the output which rules left documents out, or lower "
                "--validation_fraction"
            )
        require_written(self._output, sizes_of_corpus(written))
        for path, size, changed, *weight in self._files:
            # Those with a weight are inputs, checked when they had been read; the others are read until here.
            if not weight and path != f"{self._output}/vocab.txt":
                require_unchanged(path, size, changed)
        require_languages(counts["languages"], self._options["language_sampling_exponent"])
        path = f"{self._output}/{corpus_manifest.FILE_NAME}"
        write_text(path, Corpus(self._options, self._files, counts, vocab, written, versions()).to_json())
        yield path


def total_counts(counts: list[dict[str, Any]], parts: list[Part]) -> dict[str, Any]:
    """Adds up what `pipelines.corpus.write_shards.count_records` counted in every part, for `corpus.json`."""
    total: dict[str, Any] = {
        "documents": {split: sum(part.documents for part in parts if part.split == split) for split in SPLITS},
        "sentences": {split: sum(part.sentences for part in parts if part.split == split) for split in SPLITS},
        "documents_rejected": _added(rules for part in counts for rules in part["rejected"].values()),
        "documents_reported": _added(part["reported"] for part in counts),
        "paragraphs_cleaned": _added(part["cleaned"] for part in counts),
    }
    # The parts of cased text do not count them.
    marks = [part["marks"] for part in counts if "marks" in part]
    if marks:
        total["marks"] = total_marks(
            MarkCounts(each["letters"], each["lost"], Counter(each["words"])) for each in marks
        )
    for unit in ("words", "characters", "bytes"):
        total[unit] = sum(size[unit] for part in counts for size in part["languages"].values())
    for group in ("inputs", "languages"):
        names = sorted({name for part in counts for name in part[group]})
        total[group] = {name: _added(part[group].get(name, {}) for part in counts) for name in names}
    for name in sorted({name for part in counts for name in part["rejected"]}):
        rejected = _added(part["rejected"].get(name, {}) for part in counts)
        total["inputs"].setdefault(name, {"documents": 0})["rejected"] = rejected
    for name in sorted({name for part in counts for name in part.get("lost", {})}):
        lost = _added(part.get("lost", {}).get(name, {}) for part in counts)
        if lost:
            total["inputs"].setdefault(name, {"documents": 0})["bytes_lost"] = lost
    return total


def total_marks(counts: Iterable[MarkCounts]) -> dict[str, Any]:
    """Add up the letters that lose a mark, for `corpus.json`: numbers, and an example with what becomes of it."""
    total = MarkCounts()
    for each in counts:
        total.merge(each)
    uncased = " ".join(split_words(total.example, do_lower_case=True))
    return {"letters": total.letters, "lost": total.lost, "example": [total.example, uncased]}


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def build_corpus(
    pipeline: beam.Pipeline,
    units: list[FileSplit],
    files: list[list[Any]],
    options: CorpusOptions,
    output: str,
    work: str = "",
) -> None:
    """Composes job 1.

    Args:
        pipeline: to add the steps to.
        units: parts of files to read, from `pipelines.corpus.reading.split_inputs`.
        files: [path, bytes, time last changed, ...] of every file the result hangs on, for the manifest.
        options: what to do.
        output: the corpus directory, on any Beam filesystem.
        work: directory for what is read but not yet written, where a job that was killed goes on from. For an engine
            that would hold a shuffle in memory; elsewhere "".
    """
    buckets, read, losses = _read_into_buckets(pipeline, units, options, work)
    parts = buckets | "WritePart" >> beam.ParDo(WritePart(output, options, work)).with_outputs(
        WritePart.WORDS, main="parts"
    )
    start = pipeline | "Start" >> beam.Create([None])
    # Where workers make a deleted directory again, a vocab.txt in it may be somebody else's by then.
    mark = f"{output}/{WORK_NAME}/{WORK_FILE_NAME}" if work else ""
    vocab = make_vocabulary(
        start, parts.words, options, num_word_groups(options.num_buckets), f"{output}/vocab.txt", mark
    )
    _ = start | "Manifest" >> beam.ParDo(
        WriteCorpusManifest(output, dataclasses.asdict(options), files),
        written_parts=beam.pvalue.AsIter(parts.parts),
        vocab=beam.pvalue.AsSingleton(vocab),
        read=beam.pvalue.AsIter(read),
        losses=beam.pvalue.AsIter(losses),
    )


def build_vocabulary(
    pipeline: beam.Pipeline, units: list[FileSplit], options: CorpusOptions, output: str, report: str, work: str = ""
) -> None:
    """Composes the part of job 1 that makes vocab.txt, with the same bytes, and writes nothing else.

    Args:
        pipeline: to add the steps to.
        units: parts of files to read, from `pipelines.corpus.reading.split_inputs`.
        options: what to do.
        output: the vocabulary file, on any Beam filesystem.
        report: file for what `corpus.json` would have as "vocab", "documents_rejected" and "marks", as JSON.
        work: see `build_corpus`.
    """
    buckets, _, _ = _read_into_buckets(pipeline, units, options, work)
    parts = buckets | "CountPart" >> beam.ParDo(CountPart(options)).with_outputs(
        CountPart.REJECTED, CountPart.MARKS, main="words"
    )
    start = pipeline | "Start" >> beam.Create([None])
    vocab = make_vocabulary(start, parts.words, options, num_word_groups(options.num_buckets), output)
    _ = vocab | "Report" >> beam.Map(
        _write_summary, beam.pvalue.AsIter(parts.rejected), beam.pvalue.AsIter(parts.marks), report
    )


def _write_summary(
    vocab: dict[str, Any], rejected: Iterable[dict[str, int]], marks: Iterable[MarkCounts], path: str
) -> None:
    content = {"vocab": vocab, "documents_rejected": _added(rejected), "marks": total_marks(marks)}
    write_text(path, json.dumps(content))


def _read_into_buckets(
    pipeline: beam.Pipeline, units: list[FileSplit], options: CorpusOptions, work: str
) -> tuple[beam.PCollection, beam.PCollection, beam.PCollection]:
    """Return (partition, grouped blocks), the number of documents of each file split, and the bytes lost in each."""
    read = (
        pipeline
        | "Units" >> beam.Create(units)
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(ReadSplit(options, work)).with_outputs(ReadSplit.COUNT, ReadSplit.LOSSES, main="blocks")
    )
    return group_by_partition(read.blocks, options), read[ReadSplit.COUNT], read[ReadSplit.LOSSES]
