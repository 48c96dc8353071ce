"""Transforms that compare all documents of a corpus and write it: deduplication, and the corpus on disk.

Counts come from the written data, never from Beam's counters, which count retried work twice.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsIter, AsSingleton, PBegin, PCollection

from beambert.common.word_rules import WordRules, rules_of, without_released_rules
from beambert.pipelines.cleaning import quality_model
from beambert.pipelines.cleaning.personal_data import mask_metadata, mask_personal_data
from beambert.pipelines.cleaning.rules import (
    CONTAMINATED,
    DOCUMENT_RULES,
    LOW_QUALITY,
    PARAGRAPH_RULES,
    CleaningOptions,
)
from beambert.pipelines.cleaning.urls import URL
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.blocks import DeduplicationResult
from beambert.pipelines.corpus.corpus_manifest import (
    Corpus,
    CorpusReader,
    CorpusShard,
    corpus_shard_name,
    sizes_of_corpus,
)
from beambert.pipelines.corpus.counts import (
    MAX_SAMPLES,
    Loss,
    add_counts,
    count_documents,
    losses_of_files,
    reported_rules,
)
from beambert.pipelines.corpus.document_steps import snippet
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import is_written, read_marker, require_written, write_marker, write_text
from beambert.pipelines.io.job_progress import WRITING, WorkCounter
from beambert.pipelines.io.output_directory import WORK_FILE_NAME, WORK_NAME
from beambert.pipelines.io.versions import require_same_rules, versions
from beambert.pipelines.runner.job_output import absolute
from beambert.pipelines.sources.files import require_unchanged
from beambert.pipelines.sources.readers import FileSplit, Input
from beambert.pipelines.transforms.directories import RequireNewOutput, open_corpus
from beambert.pipelines.transforms.documents import (
    CleanDocuments,
    MatchInputs,
    ReadAbbreviations,
    ReadBlocks,
    RejectDocuments,
)
from beambert.pipelines.transforms.partitions import (
    DEDUPLICATION_OPTIONS,
    NUM_PARTITIONS,
    GroupByPartition,
    Grouped,
    ToBlocks,
    corpus_options,
    deduplicate_partition,
    group_documents,
    upstream_of,
)
from beambert.pipelines.transforms.vocabulary import WriteVocabulary, count_shard_words
from beambert.pipelines.vocabulary.vocabulary_options import require_languages
from beambert.pipelines.vocabulary.word_groups import Batch, Group
from beambert.tokenizer.lost_marks import count_marks

_MAX_REJECTED_LISTED = 1000
# Fields of `CleaningOptions` that concern paragraphs, not documents.
_PARAGRAPH_OPTIONS = ("fix_mojibake", "end_punctuation", "pii")


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(Document)
class DeduplicateDocuments(beam.PTransform):
    """Reject segmented documents with the same text as another one, and optionally near-duplicates.

    Of equal documents, the one with the largest weight is kept, then the first by title and source. `WriteCorpus` and
    `CreatePretrainingExamples` reject equal documents in any case.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A text."], title) for title in ("b", "a")])
    ...     found = documents | SegmentSentences() | DeduplicateDocuments()
    ...     _ = found | beam.Map(lambda document: print(document.title, document.rejected or "kept"))
    b duplicate
    a kept

    Args:
        near_duplicates: whether to reject documents that share most of their text with another one.
        repeated_paragraphs: whether to drop paragraphs that also occur in another document.
        duplicate_urls: whether to reject documents with the URL of another one, of which the smallest ID is kept.
        domain_lines: if not 0, drop paragraphs that this number of documents of a domain have.
        num_partitions: number of groups of documents; a group is held in memory. It does not change the result.
    """

    def __init__(
        self,
        near_duplicates: bool = False,
        repeated_paragraphs: bool = False,
        num_partitions: int = NUM_PARTITIONS,
        duplicate_urls: bool = False,
        domain_lines: int = 0,
    ) -> None:
        super().__init__()
        self.recorded = {
            "near_duplicates": near_duplicates,
            "repeated_paragraphs": repeated_paragraphs,
            "duplicate_urls": duplicate_urls,
            "domain_lines": domain_lines,
        }
        self._options = corpus_options(**self.recorded, num_partitions=num_partitions)

    def expand(self, documents: PCollection) -> PCollection:
        """Return all documents, some of them rejected."""
        return group_documents(documents, self._options) | "Deduplicate" >> beam.FlatMap(_deduplicated)


def _deduplicated(element: tuple[Partition, Grouped]) -> Iterator[Document]:
    result = deduplicate_partition(element)
    yield from result.rejected
    yield from result.kept


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(str)
class WriteCorpus(beam.PTransform):
    """Write segmented documents as a corpus, which `beambert pretraining-data` and `ReadCorpus` read.

    The directory gets the files that `beambert corpus` writes: `corpus/*.parquet`, `rejected/*.jsonl`, `vocab.txt`, and
    `corpus.json` last, which records the options of the transforms that the documents come from, and the files of
    `ReadDocuments`.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} and the hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences() | RejectDocuments()
    ...     _ = documents | WriteCorpus("corpus", vocab_size=40) | beam.Map(lambda path: print(path[-18:]))
    corpus/corpus.json

    Args:
        output: a new or empty directory, on any Beam filesystem.
        **options: fields of `CorpusOptions` that concern vocabulary, partitions and deduplication: vocab_size or
            vocab_file, do_lower_case, num_partitions (training shards, each of which must fit in memory),
            validation_fraction, near_duplicates and others. Those of reading and cleaning are recorded as the
            transforms have them.

    Raises:
        OutputError: when the pipeline runs: the directory has files.
        SourceError: neither or both of vocab_size and vocab_file are given.
    """

    def __init__(self, output: str, **options: Any) -> None:
        super().__init__()
        if bool(options.get("vocab_size")) == bool(options.get("vocab_file")):
            raise SourceError("WriteCorpus requires either vocab_size or vocab_file")
        if options.get("vocab_file"):
            options["vocab_file"] = absolute(options["vocab_file"])
        self._output, self._options, self._given = absolute(output), corpus_options(**options), options

    def expand(self, documents: PCollection) -> PCollection:
        """Return the path of `corpus.json`."""
        upstream = list(upstream_of(documents))
        recorded = _recorded_options([applied.transform for applied in upstream], self._options)
        options = dataclasses.replace(self._options, **{**recorded, **self._given})
        blocks = documents | "ToBlocks" >> ToBlocks(options) | "NewOutput" >> RequireNewOutput(self._output)
        read = documents | "Count" >> beam.combiners.Count.Globally()
        nothing = documents.pipeline | "Nothing" >> beam.Create([])
        inputs, abbreviations = (
            (*(applied.outputs[None] for applied in upstream if isinstance(applied.transform, kind)), nothing)
            | f"Flatten{kind.__name__}" >> beam.Flatten()
            for kind in (MatchInputs, ReadAbbreviations)
        )
        return write_blocks(
            blocks, read, nothing, [], options, self._output, inputs=inputs, abbreviations=abbreviations
        )


def _recorded_options(transforms: list[beam.PTransform], options: CorpusOptions) -> dict[str, Any]:
    """Return the fields of `CorpusOptions` that describe transforms.

    Args:
        transforms: the transforms that the documents of a corpus come from, the last one first.
        options: the options of the corpus; deduplication by either counts.
    """
    recorded: dict[str, Any] = {}
    cleaning, rejecting = None, None
    for transform in transforms:
        if isinstance(transform, CleanDocuments):
            cleaning = cleaning or transform.step.keywords["options"]
        elif isinstance(transform, RejectDocuments):
            rejecting = rejecting or transform.step.keywords["options"]
        described = getattr(transform, "recorded", {})
        filters = described.get("filters", []) + recorded.get("filters", [])
        recorded = {**described, **recorded, "filters": filters}
    for name in DEDUPLICATION_OPTIONS:
        recorded[name] = recorded.get(name, False) or getattr(options, name)
    skipped = {
        *(name for name in PARAGRAPH_RULES if cleaning is None or not cleaning.runs(name)),
        *(name for name in DOCUMENT_RULES if rejecting is None or not rejecting.runs(name)),
    }
    paragraph_options = {name: getattr(cleaning or CleaningOptions(), name) for name in _PARAGRAPH_OPTIONS}
    recorded["cleaning"] = dataclasses.replace(
        rejecting or CleaningOptions(), skip_rules=",".join(sorted(skipped)), **paragraph_options
    )
    return recorded


def write_blocks(
    blocks: PCollection,
    documents_read: PCollection,
    losses: PCollection,
    files: list[list[Any]],
    options: CorpusOptions,
    output: str,
    work: str = "",
    inputs: PCollection | None = None,
    abbreviations: PCollection | None = None,
) -> PCollection:
    """Write the corpus of blocks of documents.

    Args:
        blocks: results of `ToBlocks`.
        documents_read: numbers of documents; their sum is the number of documents in the blocks.
        losses: (path, pattern, whether the split is the complete file, loss) of every file split.
        files: [path, bytes, time of last change, ...] of every file that the result depends on, for the manifest. As an
            argument of a transform, they would be in the graph twice.
        options: options of the corpus.
        output: the corpus directory, on any Beam filesystem.
        work: work directory, from which a killed job resumes, for a runner that shuffles in memory. "" for other
            runners.
        inputs: lists of input files that are known only when the pipeline runs.
        abbreviations: the same for the option.

    Returns:
        The path of the manifest.
    """
    write = _WriteCorpusShard(output, options, work)
    written = (
        blocks
        | "GroupByPartition" >> GroupByPartition(options)
        | "WriteCorpusShard" >> beam.ParDo(write).with_outputs(write.WORDS, main="shards")
    )
    # Workers create a deleted directory again, but by then a vocab.txt in it may be a user's file.
    mark = f"{output}/{WORK_NAME}/{WORK_FILE_NAME}" if work else ""
    vocab = written.words | "WriteVocabulary" >> WriteVocabulary(options, f"{output}/vocab.txt", mark)
    return (
        blocks.pipeline
        | "Start" >> beam.Create([None])
        | "Manifest"
        >> beam.Map(
            _write_manifest,
            output,
            without_released_rules(dataclasses.asdict(options)),
            files,
            written_shards=AsIter(written.shards),
            vocab=AsSingleton(vocab),
            read=AsIter(documents_read),
            losses=AsIter(losses),
            inputs=AsIter(inputs) if inputs else (),
            abbreviations=AsIter(abbreviations) if abbreviations else (),
        )
    )


class _RejectedLines:
    """The rejected documents and paragraphs of a shard as JSON Lines, at most `_MAX_REJECTED_LISTED` per rule.

    Documents are added in order of their IDs, which are hashes. So the entries are a random sample that is the same in
    every build.

    Args:
        hidden_rules: rules whose personal data the list does not have, from `CleaningOptions`.

    Attributes:
        samples: The first texts of each rule, for the report; of `LOW_QUALITY`, those next to the threshold.
    """

    def __init__(self, hidden_rules: tuple[str, ...]) -> None:
        self.samples: dict[str, list[dict[str, str]]] = {}
        self._hidden_rules = hidden_rules
        self._seen: Counter[str] = Counter()
        self._lines: list[str] = []

    def add(self, document: Document, rule: str, text: str, **fields: str) -> None:
        """Add a document or paragraph, unless the limit of the rule is reached."""
        self._seen[rule] += 1
        if self._seen[rule] <= _MAX_REJECTED_LISTED:
            title = mask_personal_data(document.title, self._hidden_rules)
            metadata = mask_metadata(document.metadata, self._hidden_rules)
            shown = snippet(text, self._hidden_rules)
            line = {
                "id": document.id,
                "reason": rule,
                "title": title,
                "source": document.source,
                **({"line": document.line} if document.line else {}),
                **({"byte": document.byte} if document.byte >= 0 else {}),
                **({"source_id": document.source_id} if document.source_id else {}),
                **({"metadata": metadata} if metadata else {}),
                "text": shown,
                **fields,
            }
            self._lines.append(json.dumps(line, ensure_ascii=False) + "\n")
            if self._seen[rule] <= MAX_SAMPLES:
                self.samples.setdefault(rule, []).append(self._sample(document, text))

    def sample_near(self, documents: Iterable[Document], min_quality: float) -> None:
        """Replace the samples of `LOW_QUALITY` by the documents next to the threshold, and add those that are kept."""
        for rule, reason in ((LOW_QUALITY, LOW_QUALITY), (f"{LOW_QUALITY}, kept", "")):
            scored = [
                (abs(document.removed.quality - min_quality), document.id, document)
                for document in documents
                if document.removed.quality is not None and document.rejected == reason
            ]
            if scored:
                self.samples[rule] = [
                    {**self._sample(document, document.text), "quality": f"{document.removed.quality:.4f}"}
                    for _, _, document in sorted(scored, key=lambda row: row[:2])[:MAX_SAMPLES]
                ]

    def _sample(self, document: Document, text: str) -> dict[str, str]:
        return {
            "id": document.id,
            "title": mask_personal_data(document.title, self._hidden_rules),
            "place": mask_metadata(document.metadata, self._hidden_rules).get(URL) or document.source,
            "text": snippet(text, self._hidden_rules),
        }

    def write(self, path: str) -> None:
        """Write the file unless it would be empty."""
        if self._lines:
            write_text(path, "".join(self._lines))


class FinishedShard(NamedTuple):
    """The content of the completion marker of a shard.

    Attributes:
        shard: the shard, or None if all its documents are rejected.
        counts: counts from `count_records`, and of diacritics.
        words: word counts from `count_shard_words`.
    """

    shard: CorpusShard | None
    counts: dict[str, Any]
    words: list[tuple[Group, Batch]]


@beam.typehints.with_output_types(tuple[CorpusShard | None, dict[str, Any]])
class _WriteCorpusShard(beam.DoFn):
    """Write the Parquet file of a partition and yield its CorpusShard and counts.

    Input: (partition, grouped blocks). Side output: word counts.

    Args:
        output: corpus directory.
        options: options of the corpus.
        work: work directory for completion markers, which allow resuming, or "".
    """

    WORDS = "words"
    _WRITTEN = Metrics.counter("beambert", "corpus_shards_written")

    def __init__(self, output: str, options: CorpusOptions, work: str) -> None:
        self._output = output
        self._options = options
        self._work = work

    def setup(self) -> None:
        require_same_rules(self._options.character_rules, "the machine that started the job")

    def process(self, element: tuple[Partition, Grouped]) -> Iterator[Any]:
        """Write one shard and its rejected texts, unless its completion marker exists."""
        (split, number), _ = element
        name = corpus_shard_name(split, number, self._options)
        marker = f"{self._work}/{name}.json"
        done = read_marker(marker, FinishedShard) if self._work else None
        if done and done.shard and not is_written(f"{self._output}/{done.shard.name}", done.shard.bytes):
            # Another process removed the shard.
            done = None
        if done is None:
            deduplicated = deduplicate_partition(element)
            shard, counts = self._write(name, split, number, deduplicated)
            words = list(count_shard_words(split, deduplicated.kept, self._options)) if shard else []
            if self._work:
                write_marker(marker, [shard and dataclasses.asdict(shard), counts, words])
        else:
            shard, counts, words = done.shard, done.counts, done.words
        self._WRITTEN.inc()
        WorkCounter(WRITING, 1).finish()
        for batch in words:
            yield beam.pvalue.TaggedOutput(self.WORDS, batch)
        yield shard, counts

    def _write(
        self, name: str, split: str, number: int, deduplicated: DeduplicationResult
    ) -> tuple[CorpusShard | None, dict[str, Any]]:
        """Write the Parquet file and the rejected texts, and return the shard and its counts."""
        rejected = _rejected_lines(deduplicated, self._options.cleaning.hidden_rules)
        rejected.sample_near([*deduplicated.rejected, *deduplicated.kept], self._options.min_quality)
        rejected.write(f"{self._output}/rejected/{name}.jsonl")
        counts = {**count_documents(deduplicated), "samples": rejected.samples}
        if WordRules.of(self._options).strips_accents:
            counts["diacritics"] = vars(count_marks(document.text for document in deduplicated.kept))
        if not deduplicated.kept:
            return None, counts
        path = f"corpus/{name}.parquet"
        size, sha256 = corpus_manifest.write_shard(f"{self._output}/{path}", deduplicated.kept)
        sentences = sum(document.num_sentences for document in deduplicated.kept)
        partitions = self._options.num_partitions_of(split)
        return CorpusShard(path, split, number, partitions, len(deduplicated.kept), sentences, size, sha256), counts


def _rejected_lines(deduplicated: DeduplicationResult, hidden_rules: tuple[str, ...] = ()) -> _RejectedLines:
    """Return the lines of the rejected documents, then of dropped paragraphs and documents that are only reported."""
    lines = _RejectedLines(hidden_rules)
    for document in deduplicated.rejected:
        fields = {}
        if kept_id := deduplicated.duplicates.like(document):
            fields = {"like": kept_id}
        elif document.rejected == CONTAMINATED:
            fields = document.removed.contamination
        elif document.rejected in document.removed.personal_data:
            fields = {"context": document.removed.personal_data[document.rejected]}
        elif document.rejected == LOW_QUALITY:
            fields = {"quality": f"{document.removed.quality:.4f}"}
        lines.add(document, document.rejected, document.text, **fields)
    for document in [*deduplicated.rejected, *deduplicated.kept]:
        for rule, text in document.removed.dropped:
            lines.add(document, rule, text)
        for rule in reported_rules(document):
            fields = document.removed.contamination if rule == CONTAMINATED else {}
            text = document.removed.personal_data.get(rule, document.text)
            lines.add(document, f"{rule}, kept", text, **fields)
    for document in deduplicated.kept:
        for rule, text in deduplicated.repeated.get(document.id, ()):
            lines.add(document, rule, text)
    return lines


def _write_manifest(
    _: None,
    output: str,
    options: dict[str, Any],
    files: list[list[Any]],
    written_shards: Iterable[tuple[CorpusShard | None, dict[str, Any]]],
    vocab: dict[str, Any],
    read: Iterable[int],
    losses: Iterable[tuple[str, str, bool, Loss]],
    inputs: Iterable[list[Input]],
    abbreviations: Iterable[str],
) -> str:
    """Check that no document was lost, write corpus.json after all other files are written, and return its path."""
    shards = list(written_shards)
    written = sorted((shard for shard, _ in shards if shard), key=lambda shard: shard.name)
    counts = add_counts([counts for _, counts in shards], written, rules_of(options), options["min_quality"])
    counts["documents_read"] = sum(read)
    counts["files_mostly_rejected"] = losses_of_files(losses)
    if model := options["quality_model"]:
        counts["quality_model"] = quality_model.load(model, options["quality_model_sha256"]).report
    documents, rejected = counts["documents"], sum(counts["documents_rejected"].values())
    if sum(documents.values()) + rejected != counts["documents_read"]:
        raise RuntimeError(f"{counts['documents_read']} documents read, but {documents} kept and {rejected} rejected")
    if not documents["train"]:
        remedy = "see the rules in rejected/*.jsonl of the output, " if rejected else ""
        raise SourceError(
            f"--input has no training documents ({documents['validation']} in the validation split, {rejected} "
            f"rejected); add files, {remedy}or lower --validation_fraction"
        )
    require_written(output, sizes_of_corpus(written))
    for path, size, changed, *weight in files:
        # Files with a weight are inputs, checked after they were read; the others are in use until now.
        if not weight and path != f"{output}/vocab.txt":
            require_unchanged(path, size, changed)
    require_languages(counts["languages"], options["language_sampling_exponent"])
    read_files = sorted({file.path: file for listed in inputs for file in listed}.values())
    files = files + [[file.path, file.bytes, file.changed, file.weight] for file in read_files]
    if own := {line for content in abbreviations for line in content.splitlines()}:
        options = {**options, "abbreviations": "\n".join(sorted(own))}
    path = f"{output}/{corpus_manifest.FILE_NAME}"
    write_text(path, Corpus(options, files, counts, vocab, written, versions("corpus")).to_json())
    return path


@beam.typehints.with_output_types(Document)
class ReadCorpus(beam.PTransform):
    """Read the documents of a corpus of `beambert corpus` or `WriteCorpus`; each file is verified by its SHA-256.

    >>> with beam.Pipeline() as pipeline:
    ...     texts = [Document([f"The cat number {number} and the hat."]) for number in range(9)]
    ...     documents = pipeline | beam.Create(texts) | SegmentSentences()
    ...     _ = documents | WriteCorpus("texts", vocab_size=40)
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | ReadCorpus("texts")
    ...     _ = documents | beam.combiners.Count.Globally() | beam.Map(print)
    9

    Args:
        directory: the corpus, on any Beam filesystem.
        splits: splits to read.

    Raises:
        SourceError: when the pipeline runs: the directory has no corpus, or a file has changed.
    """

    def __init__(self, directory: str, splits: tuple[str, ...] = ("train", "validation")) -> None:
        super().__init__()
        self._directory, self._splits = directory, splits

    def expand(self, pipeline: PBegin) -> PCollection:
        """Return the documents."""
        return (
            pipeline
            | "Directory" >> beam.Create([self._directory])
            | "Shards" >> beam.FlatMap(_list_shards, self._splits)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMapTuple(_read_shard)
        )


def _list_shards(directory: str, splits: tuple[str, ...]) -> list[tuple[str, CorpusReader]]:
    """Return the names of the shards with the reader of the corpus."""
    reader = open_corpus(directory)
    return [(shard.name, reader) for shard in reader.read_manifest().shards if shard.split in splits]


def _read_shard(name: str, reader: CorpusReader) -> Iterator[Document]:
    """Yield the documents of a shard; the corpus does not record where a paragraph ends."""
    table = reader.read_shard(name, [*corpus_manifest.SCHEMA.names, corpus_manifest.METADATA.name])
    for row in table.to_pylist():
        yield Document(
            ["\n".join(row["sentences"])],
            title=row["title"],
            source=row["source"],
            language=row["language"],
            weight=row["weight"],
            id=row["id"],
            metadata=json.loads(row.get("metadata") or "{}"),
        )


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
