"""Divide input files into splits, and read the documents of a split."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import reads_files
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.files import require_unchanged
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
