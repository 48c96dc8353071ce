"""The first half of job 1: file split -> documents -> cleaned and segmented records -> blocks by partition."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics

from beambert.common.typed_json import Count, JsonError, convert, require
from beambert.pipelines.corpus import document_steps as steps
from beambert.pipelines.corpus.block_buffer import BlockBuffer
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.corpus.records import BlockLocation, Record, read_block_file, write_block_file
from beambert.pipelines.corpus.removed_text import Loss
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.live_counts import READING, WorkCounter
from beambert.pipelines.io.manifest_schemas import Split, SplitSummary
from beambert.pipelines.sources import ReadOptions, SourceError, read_file, split_file
from beambert.pipelines.sources.documents import Document
from beambert.pipelines.sources.files import read_position, require_unchanged
from beambert.pipelines.sources.lines import RangeStart
from beambert.pipelines.sources.readers import is_dump_by_name, line_reader_of, read_range

# Number of ranges that a large input of text is divided into, to bound the size of the job that is sent to a cluster.
_MAX_RANGES = 4096


class Input(NamedTuple):
    """An input file.

    Attributes:
        path: path of the file.
        bytes: its size.
        changed: its modification time.
        origin: the --input pattern that matched it.
        weight: sampling weight of its documents.
    """

    path: str
    bytes: int
    changed: Any
    origin: str
    weight: float


class FileSplit(NamedTuple):
    """A file split, read by one worker; `start` and `stop` are from `beambert.pipelines.sources.split_file`."""

    input: Input
    start: int
    stop: int | None

    @property
    def bytes(self) -> int:
        """Return the size of the split in bytes."""
        return (self.input.bytes if self.stop is None else self.stop) - self.start

    @property
    def is_whole_file(self) -> bool:
        """Return whether the split is the complete file."""
        return not self.start and self.stop is None

    def name(self) -> str:
        """Return a name derived from the file and the range of the split."""
        return hashlib.blake2b(json.dumps(self).encode("utf-8"), digest_size=12).hexdigest()


class SplitRead(NamedTuple):
    """A file split, and where its reading starts: `WHOLE_FILE`, `BY_ITSELF`, the start of a range, or None if empty."""

    split: FileSplit
    start: RangeStart | None


# The split reads the complete file.
WHOLE_FILE = RangeStart()
# The split is of a Wikipedia dump, which is read without information about other splits.
BY_ITSELF = RangeStart("wikipedia")


def split_inputs(inputs: list[Input], options: ReadOptions) -> list[FileSplit]:
    """Return the splits of all files. A local file that cannot be read in ranges is one split."""
    min_bytes = sum(file.bytes for file in inputs) // _MAX_RANGES
    splits = []
    for file in inputs:
        ranges = split_file(file.path, file.bytes, options, min_bytes)
        if len(ranges) > 1 and "://" not in file.path and not _has_ranges(file.path, options):
            ranges = [(file.path, 0, None)]
        splits += [FileSplit(file, start, stop) for _, start, stop in ranges]
    return splits


def _has_ranges(path: str, options: ReadOptions) -> bool:
    try:
        return is_dump_by_name(path, options) or bool(line_reader_of(path, options))
    except SourceError:
        # The job reads the file as a whole and reports the error.
        return False


def to_record(document: Document, options: CorpusOptions) -> Record:
    """Apply all steps to one document."""
    document = steps.clean_document(document, options.cleaning)
    document = steps.segment_document(document, options.language, options.segmenter, options.abbreviations)
    document = steps.reject_document(document, options.cleaning)
    if options.identify_language:
        document = steps.reject_other_language(document, options.language)
    document = steps.decontaminate(document, options.decontaminate, options.decontaminate_action)
    # Last, so that truncation affects neither the partition of a document nor the detection of duplicates.
    document = steps.truncate_document(document, options.truncation_noise)
    return steps.record_of(document, options.language)


def documents_of(read: SplitRead, options: ReadOptions, *, line_paragraphs: bool = False) -> Iterator[Document]:
    """Yield the documents of a split, and check that the file has not changed since the job started.

    Args:
        read: the split and its start.
        options: options of reading.
        line_paragraphs: as of `read_file`.

    Raises:
        SourceError: the file cannot be read or has changed.
    """
    file_split, start = read
    path, size, changed, origin, weight = file_split.input
    if start is None:
        return
    if start == WHOLE_FILE:
        documents = read_file(path, options, line_paragraphs=line_paragraphs)
    elif start == BY_ITSELF:
        documents = read_file(path, options, file_split.start, file_split.stop)
    else:
        documents = read_range(path, options, start, file_split.stop)
    try:
        for document in documents:
            yield dataclasses.replace(document, origin=origin, weight=weight)
    except SourceError:
        # A file that is being written appears corrupt: report the change instead.
        _require_unchanged(path, size, changed, options)
        raise
    _require_unchanged(path, size, changed, options)


def _require_unchanged(path: str, size: int, changed: Any, options: ReadOptions) -> None:
    if options.input_format != "language_reference":
        require_unchanged(path, size, changed)


class ReadSplit(beam.DoFn):
    """Read a file split into (partition, block of records).

    Side outputs: the number of documents read, and the bytes of text that each rule removed from the file.

    Args:
        options: options of the corpus.
        work: work directory for block files, so that only the locations of blocks are shuffled, and splits read by an
            earlier job are reused. "" shuffles the blocks themselves.
    """

    COUNT = "documents_read"
    LOSSES = "losses"
    # For monitoring only; the counts of the manifest are computed from the data.
    _SO_FAR = Metrics.counter("beambert", "documents_read")

    def __init__(self, options: CorpusOptions, work: str) -> None:
        self._options = options
        self._work = work

    def process(self, read: SplitRead) -> Iterator[Any]:
        """Read one split."""
        file_split = read.split
        summary: dict[str, Any] = {"documents": 0}
        counter = WorkCounter(READING, file_split.bytes)
        if not self._work:
            yield from self._blocks(read, summary, counter)
        else:
            path = f"{self._work}/{file_split.name()}"
            block_file = read_block_file(path)
            if block_file is None or not self._is_valid(*block_file, read.start):
                write_block_file(path, self._blocks(read, summary, counter), summary)
                block_file = read_block_file(path)
                if block_file is None:
                    raise DatasetError(f"{path} was removed while the command ran; run the same command again")
            locations, summary = block_file
            yield from (((split, number), location) for (split, number), location in locations)
        counter.finish(summary["documents"])
        self._SO_FAR.inc(summary["documents"])
        yield beam.pvalue.TaggedOutput(self.COUNT, summary["documents"])
        # Work directories of older versions lack these fields.
        loss = Loss(summary.get("bytes_kept", 0), Counter(summary.get("bytes_lost", {})))
        file, is_complete = file_split.input, file_split.is_whole_file
        yield beam.pvalue.TaggedOutput(self.LOSSES, (file.path, file.origin, is_complete, loss))

    def _is_valid(
        self, locations: list[tuple[Any, BlockLocation]], summary: dict[str, Any], start: RangeStart | None
    ) -> bool:
        """Return whether the keys and summary of a block file are valid results of `_blocks` for the same start."""
        try:
            keys = convert([key for key, _ in locations], list[tuple[Split, Count]])
            require(summary, SplitSummary)
        except JsonError:
            return False
        # After an error of a range that does not recur, one split has the text of all, and the others are empty. Older
        # versions, which do not record the start, read all files but dumps that way.
        recorded = summary.get("start", list(BY_ITSELF if start == BY_ITSELF else WHOLE_FILE))
        if recorded != (start and list(start)):
            return False
        return all(number < self._options.num_partitions_of(split) for split, number in keys)

    def _blocks(
        self, read: SplitRead, summary: dict[str, Any], counter: WorkCounter
    ) -> Iterator[tuple[Partition, bytes]]:
        buffer, loss = BlockBuffer(self._options), Loss()
        line_paragraphs = self._options.segmenter == "lines"
        for document in documents_of(read, self._options.read, line_paragraphs=line_paragraphs):
            record = to_record(document, self._options)
            summary["documents"] += 1
            counter.add(1, read_position(read.split.input.path) - read.split.start)
            loss.add(record)
            yield from buffer.add(record)
        summary.update(bytes_kept=loss.kept, bytes_lost=dict(loss.lost), start=read.start)
        yield from buffer.flush()
