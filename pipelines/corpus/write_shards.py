"""The second half of job 1: the blocks of a partition -> documents -> Parquet shard, counts and rejected texts."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics

from beambert.common.typed_json import decode, require
from beambert.common.word_rules import WordRules
from beambert.pipelines.cleaning import rules
from beambert.pipelines.cleaning.rules import utf8_bytes
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import CorpusShard
from beambert.pipelines.corpus.deduplication_transforms import (
    BLOCKS,
    NEAR_DUPLICATE,
    REPEATED_PARAGRAPH,
    Grouped,
    near_duplicates_of,
    precedence,
    repeated_paragraphs_of,
    without_paragraphs,
)
from beambert.pipelines.corpus.document_steps import SNIPPET_CHARACTERS
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.corpus.records import Record, read_blocks
from beambert.pipelines.corpus.removed_text import Loss
from beambert.pipelines.io.atomic_files import read_bytes, write_text
from beambert.pipelines.io.live_counts import WRITING, WorkCounter
from beambert.pipelines.io.manifest_schemas import ShardCounts
from beambert.pipelines.io.versions import require_same_rules
from beambert.pipelines.io.written_files import is_written
from beambert.pipelines.vocabulary.word_groups import Batch, Group, num_word_groups, word_batches
from beambert.tokenizer.lost_marks import MarkCounts, count_marks

_MAX_REJECTED_LISTED = 1000


class _RejectedLines:
    """The rejected documents and paragraphs of a shard as JSON Lines, at most `_MAX_REJECTED_LISTED` per rule.

    Records are added in order of their IDs, which are hashes. So the entries are a random sample that is the same in
    every build.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._lines: list[str] = []

    def add(self, record: Record, rule: str, text: str, **fields: str) -> None:
        """Add a document or paragraph, unless the limit of the rule is reached."""
        self._seen[rule] += 1
        if self._seen[rule] <= _MAX_REJECTED_LISTED:
            line = {
                "id": record.id.hex(),
                "reason": rule,
                "title": record.title,
                "source": record.source,
                **({"line": record.line} if record.line else {}),
                **({"byte": record.byte} if record.byte >= 0 else {}),
                **({"source_id": record.source_id} if record.source_id else {}),
                "text": text[:SNIPPET_CHARACTERS],
                **fields,
            }
            self._lines.append(json.dumps(line, ensure_ascii=False) + "\n")

    def write(self, path: str) -> None:
        """Write the file unless it would be empty."""
        if self._lines:
            write_text(path, "".join(self._lines))


@dataclasses.dataclass
class DeduplicationResult:
    """The documents of a partition after all rules, in order of their IDs.

    Attributes:
        kept: documents of the corpus.
        rejected: rejected documents, each with a reason.
        near_duplicate_of: for each near-duplicate, the ID of the document that it resembles.
        repeated: dropped paragraphs that also occur in another document, by document ID.
    """

    kept: list[Record]
    rejected: list[Record]
    near_duplicate_of: dict[bytes, bytes]
    repeated: dict[bytes, list[str]]


def deduplicate(grouped: Grouped) -> DeduplicationResult:
    """Drop exact duplicates, near-duplicates and repeated paragraphs."""
    near_duplicate_of, repeated = near_duplicates_of(grouped), repeated_paragraphs_of(grouped)
    deduplicated = DeduplicationResult([], [], near_duplicate_of, {})
    before = b""
    # Sorted, so that the document that is kept does not depend on the order of arrival.
    for record in sorted(read_blocks(grouped[BLOCKS]), key=precedence):
        reason = record.reason
        if not reason and record.id == before:
            reason = rules.DUPLICATE
        elif not reason:
            before = record.id
            if record.id in near_duplicate_of:
                reason = NEAR_DUPLICATE
            elif record.id in repeated:
                numbers = repeated[record.id]
                deduplicated.repeated[record.id] = [
                    text for number, text in enumerate(record.paragraph_texts()) if number in numbers
                ]
                shorter = without_paragraphs(record, numbers)
                if shorter.text:
                    record = shorter
                else:
                    reason = REPEATED_PARAGRAPH
        if reason:
            deduplicated.rejected.append(record._replace(reason=reason))
        else:
            deduplicated.kept.append(record)
    return deduplicated


def count_shard_words(split: str, kept: Iterable[Record], options: CorpusOptions) -> Iterator[Any]:
    """Yield the word counts of one shard for `beambert.pipelines.vocabulary.learn_vocabulary.make_vocabulary`."""
    training = split == "train"
    texts: dict[tuple[str, float], list[str]] = {}
    for record in kept:
        language = record.language if training and options.language_sampling_exponent != 1.0 else ""
        # Validation text has no weights.
        texts.setdefault((language, record.weight if training else 1.0), []).append(record.text)
    groups = num_word_groups(options.num_partitions)
    for (language, weight), language_texts in sorted(texts.items()):
        yield from word_batches(split, language_texts, options, groups, language, weight)


class CountPartition(beam.DoFn):
    """Count the words of a partition as `WriteCorpusShard` does, without writing files.

    Input: (partition, grouped blocks). Output: word counts. Side outputs: {reason: rejected documents}, and counts of
    letters that lose a mark in uncased text.
    """

    REJECTED, DIACRITICS = "rejected", "diacritics"

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options

    def setup(self) -> None:
        """Check, once per worker thread, that the worker runs the same versions as the others."""
        require_same_rules(self._options.character_rules, "the machine that started the job")

    def process(self, element: tuple[Partition, Grouped]) -> Iterator[Any]:
        """Deduplicate the partition and count the words of the remaining documents."""
        (split, _), grouped = element
        deduplicated = deduplicate(grouped)
        yield beam.pvalue.TaggedOutput(self.REJECTED, dict(Counter(record.reason for record in deduplicated.rejected)))
        yield from count_shard_words(split, deduplicated.kept, self._options)
        strips = WordRules.of(self._options).strips_accents
        diacritics = count_marks(record.text for record in deduplicated.kept) if strips else MarkCounts()
        yield beam.pvalue.TaggedOutput(self.DIACRITICS, diacritics)


def corpus_shard_name(split: str, number: int, options: CorpusOptions) -> str:
    """Return the name of the files of a shard, without suffix."""
    return f"{split}-{number:05d}-of-{options.num_partitions_of(split):05d}"


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


def read_completion_marker(path: str) -> FinishedShard | None:
    """Return the completion marker of a shard, or None if it is missing or corrupt, so that the shard is rebuilt."""
    try:
        finished = decode(read_bytes(path), FinishedShard)
        require(finished.counts, ShardCounts)
    except (OSError, ValueError):
        return None
    if (
        finished.shard is not None
        and finished.shard.name != f"corpus/{path.rpartition('/')[2].removesuffix('.json')}.parquet"
    ):
        return None
    return finished if all(_is_valid(group, batch) for group, batch in finished.words) else None


def _is_valid(group: Group, batch: Batch) -> bool:
    """Return whether a batch has a count for each word, and no number is negative."""
    words, counts, dropped, weight = batch
    return (len(words.split(" ")) if words else 0) == len(counts) and min(group[2], *counts, dropped, weight) >= 0


class WriteCorpusShard(beam.DoFn):
    """Write the Parquet file of a partition and yield its CorpusShard and counts.

    Input: (partition, grouped blocks). Side output: word counts.

    Args:
        output: corpus directory.
        options: options of the corpus.
        work: work directory for completion markers, which allow resuming, or "".
    """

    WORDS = "words"
    _SO_FAR = Metrics.counter("beambert", "corpus_shards_written")

    def __init__(self, output: str, options: CorpusOptions, work: str) -> None:
        self._output = output
        self._options = options
        self._work = work

    def setup(self) -> None:
        """Check, once per worker thread, that the worker runs the same versions as the others."""
        require_same_rules(self._options.character_rules, "the machine that started the job")

    def process(self, element: tuple[Partition, Grouped]) -> Iterator[Any]:
        """Write one shard and its rejected texts, unless its completion marker exists."""
        (split, number), grouped = element
        name = corpus_shard_name(split, number, self._options)
        marker = f"{self._work}/{name}.json"
        done = read_completion_marker(marker) if self._work else None
        if done and done.shard and not is_written(f"{self._output}/{done.shard.name}", done.shard.bytes):
            # Another process removed the shard.
            done = None
        if done is None:
            deduplicated = deduplicate(grouped)
            shard, counts = self._write(name, split, number, deduplicated)
            words = list(count_shard_words(split, deduplicated.kept, self._options)) if shard else []
            if self._work:
                write_text(marker, json.dumps([shard and dataclasses.asdict(shard), counts, words]))
        else:
            shard, counts, words = done.shard, done.counts, done.words
        self._SO_FAR.inc()
        WorkCounter(WRITING, 1).finish()
        for batch in words:
            yield beam.pvalue.TaggedOutput(self.WORDS, batch)
        yield shard, counts

    def _write(
        self, name: str, split: str, number: int, deduplicated: DeduplicationResult
    ) -> tuple[CorpusShard | None, dict[str, Any]]:
        """Write the Parquet file and the rejected texts, and return the shard and its counts."""
        lines = _RejectedLines()
        for record in deduplicated.rejected:
            kept_id = deduplicated.near_duplicate_of.get(record.id)
            fields = {"like": kept_id.hex()} if kept_id and record.reason == NEAR_DUPLICATE else {}
            if record.reason == rules.CONTAMINATED:
                fields = json.loads(record.work)["contamination"]
            lines.add(record, record.reason, record.text, **fields)
        for record in [*deduplicated.rejected, *deduplicated.kept]:
            work = json.loads(record.work) if record.work else {"dropped": [], "reported": []}
            for rule, snippet in work["dropped"]:
                lines.add(record, rule, snippet)
            for rule in () if record.reason else work["reported"]:
                fields = work["contamination"] if rule == rules.CONTAMINATED else {}
                lines.add(record, f"{rule}, kept", record.text, **fields)
        for record in deduplicated.kept:
            for text in deduplicated.repeated.get(record.id, ()):
                lines.add(record, REPEATED_PARAGRAPH, text)
        lines.write(f"{self._output}/rejected/{name}.jsonl")
        counts = count_records(deduplicated)
        if WordRules.of(self._options).strips_accents:
            counts["diacritics"] = vars(count_marks(record.text for record in deduplicated.kept))
        if not deduplicated.kept:
            return None, counts
        path = f"corpus/{name}.parquet"
        size, sha256 = corpus_manifest.write_shard(f"{self._output}/{path}", deduplicated.kept)
        sentences = sum(sum(record.paragraphs) for record in deduplicated.kept)
        partitions = self._options.num_partitions_of(split)
        return CorpusShard(path, split, number, partitions, len(deduplicated.kept), sentences, size, sha256), counts


def count_records(deduplicated: DeduplicationResult) -> dict[str, Any]:
    """Return the counts of a shard for `corpus.json`: by input, by language and by rule."""
    inputs: dict[str, Counter[str]] = {}
    rejected: dict[str, Counter[str]] = {}
    languages: dict[str, Counter[str]] = {}
    cleaned: Counter[str] = Counter()
    reported: Counter[str] = Counter()
    losses: dict[str, Loss] = {}
    for record in deduplicated.rejected:
        rejected.setdefault(record.origin, Counter())[record.reason] += 1
    for record in deduplicated.kept:
        size = {
            "documents": 1,
            "sentences": sum(record.paragraphs),
            "words": len(record.text.split()),
            "characters": len(record.text),
            "bytes": len(record.text.encode("utf-8")),
        }
        inputs.setdefault(record.origin, Counter()).update(size)
        languages.setdefault(record.language, Counter()).update(size)
        cleaned[REPEATED_PARAGRAPH] += len(deduplicated.repeated.get(record.id, ()))
        losses.setdefault(record.origin, Loss()).lost[REPEATED_PARAGRAPH] += sum(
            map(utf8_bytes, deduplicated.repeated.get(record.id, ()))
        )
    for record in [*deduplicated.rejected, *deduplicated.kept]:
        losses.setdefault(record.origin, Loss()).add(record)
        if record.work:
            work = json.loads(record.work)
            cleaned.update(work["counts"])
            if not record.reason:
                reported.update(work["reported"])
    return {
        "inputs": inputs,
        "rejected": rejected,
        "languages": languages,
        "cleaned": +cleaned,
        "reported": reported,
        "lost": {origin: +loss.lost for origin, loss in losses.items()},
    }
