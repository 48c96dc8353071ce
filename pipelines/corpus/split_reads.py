"""Find where the reading of each file split starts: the first steps of job 1, before the splits are read.

The ranges of a file of lines are indexed in parallel, which reads the input once, without parsing it. Their indexes are
grouped by file and added up. Other splits need no such step.
"""

import contextlib
from collections.abc import Iterable, Iterator

import apache_beam as beam

from beambert.pipelines.corpus.reading import BY_ITSELF, WHOLE_FILE, FileSplit, SplitRead
from beambert.pipelines.errors import SourceError
from beambert.pipelines.sources import ReadOptions
from beambert.pipelines.sources.ranges import RangeIndex, index_range, locate_ranges
from beambert.pipelines.sources.readers import LINE_READERS, is_dump_by_name, line_reader_of

# A range, the name of its reader, and its index; None if the range has none.
_Indexed = tuple[FileSplit, str, RangeIndex | None]


def splits_to_read(pipeline: beam.Pipeline, splits: list[FileSplit], options: ReadOptions) -> beam.PCollection:
    """Return the splits as `SplitRead`, spread over the workers.

    Args:
        pipeline: The pipeline.
        splits: File splits from `beambert.pipelines.corpus.reading.split_inputs`.
        options: Options of reading.
    """
    without_index, of_files = _group_splits(splits, options)
    reads = pipeline | "FileSplits" >> beam.Create(without_index) | "WithoutIndex" >> beam.Map(_without_index)
    if of_files:
        ranges = locate_files(pipeline | "FilesWithRanges" >> beam.Create(of_files), options)
        reads = (reads, ranges) | "AllSplits" >> beam.Flatten()
    return reads | "Spread" >> beam.Reshuffle()


def locate_files(files: beam.PCollection, options: ReadOptions) -> beam.PCollection:
    """Return the splits of files as `SplitRead`.

    Args:
        files: lists of the splits of a file, from `beambert.pipelines.corpus.reading.split_inputs`.
        options: options of reading.
    """
    return (
        files
        | "RecognizeFormat" >> beam.FlatMap(_with_reader, options)
        | "SpreadRanges" >> beam.Reshuffle()
        | "IndexRange" >> beam.Map(_index, options)
        | "GroupByFile" >> beam.GroupByKey()
        | "LocateRanges" >> beam.FlatMapTuple(_located)
    )


def _group_splits(splits: list[FileSplit], options: ReadOptions) -> tuple[list[FileSplit], list[list[FileSplit]]]:
    """Return the splits that need no index, and the other ones by file."""
    without_index: list[FileSplit] = []
    of_files: dict[str, list[FileSplit]] = {}
    for split in splits:
        if split.is_whole_file or is_dump_by_name(split.input.path, options):
            without_index.append(split)
        else:
            of_files.setdefault(split.input.path, []).append(split)
    return without_index, list(of_files.values())


def _without_index(split: FileSplit) -> SplitRead:
    return SplitRead(split, WHOLE_FILE if split.is_whole_file else BY_ITSELF)


def _with_reader(splits: list[FileSplit], options: ReadOptions) -> Iterator[tuple[FileSplit, str]]:
    """Yield the splits of a file with the name of the reader of its ranges; "" if it is read as a whole."""
    reader = ""
    if len(splits) > 1:
        # Reading the complete file reports the error.
        with contextlib.suppress(SourceError):
            reader = line_reader_of(splits[0].input.path, options)
    for split in splits:
        yield split, reader


def _index(element: tuple[FileSplit, str], options: ReadOptions) -> tuple[str, _Indexed]:
    """Return (path, indexed range); an error of the file is left to its reading."""
    split, reader = element
    path = split.input.path
    index = None
    if reader in LINE_READERS:
        with contextlib.suppress(SourceError):
            index = index_range(path, options.encoding, reader, split.start, split.stop)
    return path, (split, reader, index)


def _located(path: str, indexed: Iterable[_Indexed]) -> Iterator[SplitRead]:  # noqa: ARG001
    yield from locate_splits(indexed)


def locate_splits(indexed: Iterable[_Indexed]) -> Iterator[SplitRead]:
    """Yield the splits of a file with their starts.

    Where a range has no valid index, the first split reads the complete file, and reports what is wrong with it.
    """
    ranges = sorted(indexed, key=lambda item: item[0].start)
    reader = ranges[0][1]
    if reader == "wikipedia":
        yield from (SplitRead(split, BY_ITSELF) for split, _, _ in ranges)
        return
    indexes = [(split.stop, index) for split, _, index in ranges if index is not None]
    starts = locate_ranges(reader, indexes) if len(indexes) == len(ranges) else None
    for number, (split, _, _) in enumerate(ranges):
        yield SplitRead(split, starts[number] if starts else None if number else WHOLE_FILE)
