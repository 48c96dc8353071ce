"""Compose job 1: files -> documents -> sentences -> partitions -> Parquet shards, word counts and a vocabulary.

The rules are in `sources/`, `cleaning/`, `segmentation/` and the package `tokenizer`. The steps are in
`reading.py`, `deduplication_transforms.py` and `write_shards.py` of `corpus/`, and in `vocabulary/`. Counts come from
the written data, never from Beam's counters, which count retried work twice.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from beambert.common.word_rules import WordRules, rules_of, without_released_rules
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusShard, sizes_of_corpus
from beambert.pipelines.corpus.deduplication_transforms import group_by_partition
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.corpus.reading import FileSplit, ReadSplit
from beambert.pipelines.corpus.removed_text import Loss, losses_of_files
from beambert.pipelines.corpus.write_shards import CountPartition, WriteCorpusShard
from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import write_text
from beambert.pipelines.io.output_directory import WORK_FILE_NAME, WORK_NAME
from beambert.pipelines.io.versions import versions
from beambert.pipelines.io.written_files import require_written
from beambert.pipelines.sources.files import require_unchanged
from beambert.pipelines.vocabulary.learn_vocabulary import make_vocabulary
from beambert.pipelines.vocabulary.vocabulary_options import require_languages
from beambert.pipelines.vocabulary.word_groups import num_word_groups
from beambert.tokenizer.lost_marks import MarkCounts
from beambert.tokenizer.normalization import split_words


class WriteCorpusManifest(beam.DoFn):
    """Check that no document was lost, and write corpus.json, after all other files are written."""

    def __init__(self, output: str, options: dict[str, Any], files: list[list[Any]]) -> None:
        self._output = output
        self._options = options
        self._files = files

    def process(
        self,
        _: None,
        written_shards: Iterable[tuple[CorpusShard | None, dict[str, Any]]],
        vocab: dict[str, Any],
        read: Iterable[int],
        losses: Iterable[tuple[str, str, bool, Loss]],
    ) -> Iterator[str]:
        """Write the manifest and yield its path."""
        shards = list(written_shards)
        written = sorted((shard for shard, _ in shards if shard), key=lambda shard: shard.name)
        counts = total_counts([counts for _, counts in shards], written, rules_of(self._options))
        counts["documents_read"] = sum(read)
        counts["files_mostly_rejected"] = losses_of_files(losses)
        documents, rejected = counts["documents"], sum(counts["documents_rejected"].values())
        if sum(documents.values()) + rejected != counts["documents_read"]:
            raise RuntimeError(
                f"{counts['documents_read']} documents read, but {documents} kept and {rejected} rejected"
            )
        if not documents["train"]:
            remedy = "see the rules in rejected/*.jsonl of the output, " if rejected else ""
            raise SourceError(
                f"--input has no training documents ({documents['validation']} in the validation split, {rejected} "
                f"rejected); add files, {remedy}or lower --validation_fraction"
            )
        require_written(self._output, sizes_of_corpus(written))
        for path, size, changed, *weight in self._files:
            # Files with a weight are inputs, checked after they were read; the others are in use until now.
            if not weight and path != f"{self._output}/vocab.txt":
                require_unchanged(path, size, changed)
        require_languages(counts["languages"], self._options["language_sampling_exponent"])
        path = f"{self._output}/{corpus_manifest.FILE_NAME}"
        write_text(path, Corpus(self._options, self._files, counts, vocab, written, versions()).to_json())
        yield path


def total_counts(counts: list[dict[str, Any]], shards: list[CorpusShard], word_rules: WordRules) -> dict[str, Any]:
    """Add up the counts of `pipelines.corpus.write_shards.count_records` over all shards, for `corpus.json`."""
    total: dict[str, Any] = {
        "documents": {split: sum(shard.documents for shard in shards if shard.split == split) for split in SPLITS},
        "sentences": {split: sum(shard.sentences for shard in shards if shard.split == split) for split in SPLITS},
        "documents_rejected": _sum_counts(rules for shard in counts for rules in shard["rejected"].values()),
        "documents_reported": _sum_counts(shard["reported"] for shard in counts),
        "paragraphs_cleaned": _sum_counts(shard["cleaned"] for shard in counts),
    }
    # Shards of text that keeps its marks have no such counts.
    diacritics = [shard["diacritics"] for shard in counts if "diacritics" in shard]
    if diacritics:
        total["diacritics"] = total_marks(
            (MarkCounts(count["letters"], count["lost"], Counter(count["words"])) for count in diacritics), word_rules
        )
    for unit in ("words", "characters", "bytes"):
        total[unit] = sum(size[unit] for shard in counts for size in shard["languages"].values())
    for group in ("inputs", "languages"):
        names = sorted({name for shard in counts for name in shard[group]})
        total[group] = {name: _sum_counts(shard[group].get(name, {}) for shard in counts) for name in names}
    for name in sorted({name for shard in counts for name in shard["rejected"]}):
        rejected = _sum_counts(shard["rejected"].get(name, {}) for shard in counts)
        total["inputs"].setdefault(name, {"documents": 0})["rejected"] = rejected
    for name in sorted({name for shard in counts for name in shard["lost"]}):
        lost = _sum_counts(shard["lost"].get(name, {}) for shard in counts)
        if lost:
            total["inputs"].setdefault(name, {"documents": 0})["bytes_lost"] = lost
    return total


def total_marks(counts: Iterable[MarkCounts], word_rules: WordRules) -> dict[str, Any]:
    """Add up the letters that lose a mark, for `corpus.json`, with an example word before and after the rules."""
    total = MarkCounts()
    for count in counts:
        total.merge(count)
    stripped = " ".join(split_words(total.example, word_rules))
    return {"letters": total.letters, "lost": total.lost, "example": [total.example, stripped]}


def _sum_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def build_corpus(
    pipeline: beam.Pipeline,
    splits: list[FileSplit],
    files: list[list[Any]],
    options: CorpusOptions,
    output: str,
    work: str = "",
) -> None:
    """Add the steps of job 1 to a pipeline.

    Args:
        pipeline: The pipeline.
        splits: File splits to read, from `beambert.pipelines.corpus.reading.split_inputs`.
        files: [path, bytes, time of last change, ...] of every file that the result depends on, for the manifest.
        options: Options of the job.
        output: The corpus directory, on any Beam filesystem.
        work: Work directory, from which a killed job resumes, for a runner that shuffles in memory. "" for other
            runners.
    """
    blocks, read, losses = _read_into_blocks(pipeline, splits, options, work)
    write_corpus(blocks, read, losses, files, options, output, work)


def write_corpus(
    blocks: beam.PCollection,
    read: beam.PCollection,
    losses: beam.PCollection,
    files: list[list[Any]],
    options: CorpusOptions,
    output: str,
    work: str = "",
) -> beam.PCollection:
    """Write the corpus of blocks, and return the path of its manifest as one element.

    Args:
        blocks: (partition, block of records).
        read: numbers of documents; their sum is the number of records.
        losses: (path, pattern, whether the split is the complete file, loss) of every file split.
        files, options, output, work: as for `build_corpus`.
    """
    partitions = group_by_partition(blocks, options)
    shards = partitions | "WriteCorpusShard" >> beam.ParDo(WriteCorpusShard(output, options, work)).with_outputs(
        WriteCorpusShard.WORDS, main="shards"
    )
    start = blocks.pipeline | "Start" >> beam.Create([None])
    # Workers create a deleted directory again, but by then a vocab.txt in it may be a user's file.
    mark = f"{output}/{WORK_NAME}/{WORK_FILE_NAME}" if work else ""
    vocab = make_vocabulary(
        start, shards.words, options, num_word_groups(options.num_partitions), f"{output}/vocab.txt", mark
    )
    return start | "Manifest" >> beam.ParDo(
        WriteCorpusManifest(output, without_released_rules(dataclasses.asdict(options)), files),
        written_shards=beam.pvalue.AsIter(shards.shards),
        vocab=beam.pvalue.AsSingleton(vocab),
        read=beam.pvalue.AsIter(read),
        losses=beam.pvalue.AsIter(losses),
    )


def build_vocabulary(
    pipeline: beam.Pipeline, splits: list[FileSplit], options: CorpusOptions, output: str, report: str, work: str = ""
) -> None:
    """Add the steps of job 1 that write vocab.txt, with the same bytes, and no other output.

    Args:
        pipeline: The pipeline.
        splits: File splits to read, from `beambert.pipelines.corpus.reading.split_inputs`.
        options: Options of the job.
        output: The vocabulary file, on any Beam filesystem.
        report: JSON file for the fields "vocab", "documents_rejected" and "diacritics" of `corpus.json`.
        work: As for `build_corpus`.
    """
    blocks, _, _ = _read_into_blocks(pipeline, splits, options, work)
    shards = count_partitions(blocks, options)
    start = pipeline | "Start" >> beam.Create([None])
    vocab = make_vocabulary(start, shards.words, options, num_word_groups(options.num_partitions), output)
    _ = vocab | "Report" >> beam.Map(
        _write_summary,
        beam.pvalue.AsIter(shards.rejected),
        beam.pvalue.AsIter(shards.diacritics),
        WordRules.of(options),
        report,
    )


def count_partitions(blocks: beam.PCollection, options: CorpusOptions) -> Any:
    """Return the outputs of `CountPartition` for (partition, block of records)."""
    return group_by_partition(blocks, options) | "CountPartition" >> beam.ParDo(CountPartition(options)).with_outputs(
        CountPartition.REJECTED, CountPartition.DIACRITICS, main="words"
    )


def _write_summary(
    vocab: dict[str, Any],
    rejected: Iterable[dict[str, int]],
    marks: Iterable[MarkCounts],
    word_rules: WordRules,
    path: str,
) -> None:
    diacritics = total_marks(marks, word_rules)
    content = {"vocab": vocab, "documents_rejected": _sum_counts(rejected), "diacritics": diacritics}
    write_text(path, json.dumps(content))


def _read_into_blocks(
    pipeline: beam.Pipeline, splits: list[FileSplit], options: CorpusOptions, work: str
) -> tuple[beam.PCollection, beam.PCollection, beam.PCollection]:
    """Return (partition, block), and the number of documents and the bytes lost of each file split."""
    reads = pipeline | "FileSplits" >> beam.Create(splits) | "Spread" >> beam.Reshuffle()
    read = reads | "Read" >> beam.ParDo(ReadSplit(options, work)).with_outputs(
        ReadSplit.COUNT, ReadSplit.LOSSES, main="blocks"
    )
    return read.blocks, read[ReadSplit.COUNT], read[ReadSplit.LOSSES]
