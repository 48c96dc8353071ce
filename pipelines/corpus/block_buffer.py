"""Collect records into blocks by partition."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beambert.pipelines.corpus.document_steps import record_of
from beambert.pipelines.corpus.options import CorpusOptions, Partition, partition_of_document
from beambert.pipelines.corpus.records import Record, to_block
from beambert.pipelines.documents import Document

# Characters of text to buffer before writing blocks.
_FLUSH_CHARACTERS = 32 << 20


class BlockBuffer:
    """A buffer of records by partition, which returns blocks whenever it is full.

    Args:
        options: options of the corpus; they determine the partitions.
    """

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options
        self._pending: dict[Partition, list[Record]] = {}
        self._characters = 0

    def add(self, record: Record) -> Iterator[tuple[Partition, bytes]]:
        """Add a record, and yield (partition, block) of all records if the buffer is full."""
        self._pending.setdefault(partition_of_document(record.id, self._options), []).append(record)
        self._characters += len(record.text)
        if self._characters > _FLUSH_CHARACTERS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[Partition, bytes]]:
        """Yield (partition, block) of all records, and empty the buffer."""
        yield from ((partition, to_block(records)) for partition, records in self._pending.items())
        self._pending, self._characters = {}, 0


class ToBlocks(beam.DoFn):
    """Convert documents to (partition, block of records), in the global window.

    Args:
        options: options of the corpus; they determine the partitions.
    """

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options

    def start_bundle(self) -> None:
        """Begin with an empty buffer."""
        self._buffer = BlockBuffer(self._options)

    def process(self, document: Document) -> Iterator[tuple[Partition, bytes]]:
        """Add a document, and yield blocks if the buffer is full."""
        yield from self._buffer.add(record_of(document, self._options.language))

    def finish_bundle(self) -> Iterator[Any]:
        """Yield the remaining blocks."""
        window = GlobalWindow()
        for block in self._buffer.flush():
            yield WindowedValue(block, window.max_timestamp(), [window])
