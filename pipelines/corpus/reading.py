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
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.formats import reads_files
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.live_counts import READING, WorkCounter
from beambert.pipelines.io.manifest_schemas import Split, SplitSummary
from beambert.pipelines.sources.files import read_position, require_unchanged
from beambert.pipelines.sources.readers import range_format, read_file, split_file

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
        return range_format(path, options) is not None
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


def read_documents(file_split: FileSplit, options: ReadOptions, *, line_paragraphs: bool = False) -> Iterator[Document]:
    """Yield the documents of a split, and check that the file has not changed since the job started.

    Args:
        file_split: the split.
        options: options of reading.
        line_paragraphs: as of `read_file`.

    Raises:
        SourceError: the file cannot be read or has changed.
    """
    path, size, changed, origin, weight = file_split.input
    try:
        documents = read_file(path, options, file_split.start, file_split.stop, line_paragraphs=line_paragraphs)
        for document in documents:
            yield dataclasses.replace(document, origin=origin, weight=weight)
    except SourceError:
        # A file that is being written appears corrupt: report the change instead.
        _require_unchanged(path, size, changed, options)
        raise
    _require_unchanged(path, size, changed, options)


def _require_unchanged(path: str, size: int, changed: Any, options: ReadOptions) -> None:
    if reads_files(options.input_format):
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

    def process(self, file_split: FileSplit) -> Iterator[Any]:
        """Read one split."""
        summary: dict[str, Any] = {"documents": 0}
        counter = WorkCounter(READING, file_split.bytes)
        if not self._work:
            yield from self._blocks(file_split, summary, counter)
        else:
            path = f"{self._work}/{file_split.name()}"
            block_file = read_block_file(path)
            if block_file is None or not self._is_valid(*block_file):
                write_block_file(path, self._blocks(file_split, summary, counter), summary)
                block_file = read_block_file(path)
                if block_file is None:
                    raise DatasetError(f"{path} was removed while the command ran; run the same command again")
            locations, summary = block_file
            yield from (((split, number), location) for (split, number), location in locations)
        counter.finish(summary["documents"])
        self._SO_FAR.inc(summary["documents"])
        yield beam.pvalue.TaggedOutput(self.COUNT, summary["documents"])
        loss = Loss(summary["bytes_kept"], Counter(summary["bytes_lost"]))
        file, is_complete = file_split.input, file_split.is_whole_file
        yield beam.pvalue.TaggedOutput(self.LOSSES, (file.path, file.origin, is_complete, loss))

    def _is_valid(self, locations: list[tuple[Any, BlockLocation]], summary: dict[str, Any]) -> bool:
        """Return whether the keys and the summary of a block file are valid results of `_blocks`."""
        try:
            keys = convert([key for key, _ in locations], list[tuple[Split, Count]])
            require(summary, SplitSummary)
        except JsonError:
            return False
        return all(number < self._options.num_partitions_of(split) for split, number in keys)

    def _blocks(
        self, file_split: FileSplit, summary: dict[str, Any], counter: WorkCounter
    ) -> Iterator[tuple[Partition, bytes]]:
        buffer, loss = BlockBuffer(self._options), Loss()
        line_paragraphs = self._options.segmenter == "lines"
        for document in read_documents(file_split, self._options.read, line_paragraphs=line_paragraphs):
            record = to_record(document, self._options)
            summary["documents"] += 1
            counter.add(1, read_position(file_split.input.path) - file_split.start)
            loss.add(record)
            yield from buffer.add(record)
        summary.update(bytes_kept=loss.kept, bytes_lost=dict(loss.lost))
        yield from buffer.flush()
