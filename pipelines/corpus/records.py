"""Records, the form of documents between reading and their partition, and blocks of serialized records.

Documents are shuffled to their partition in compressed blocks. The shuffle transports either the blocks or their
locations in block files. Block files are for runners that keep a shuffle in memory. They also preserve the progress of
a job that is killed.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.common.typed_json import Count, JsonError, decode
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import read_bytes, write_atomically, write_text


class Record(NamedTuple):
    """One document, cleaned and segmented.

    Attributes:
        id: document ID, 16 bytes.
        title, source, language: columns of the corpus.
        text: the sentences, one per line.
        paragraphs: number of sentences of each paragraph.
        origin: the --input pattern that matched its file.
        weight: sampling weight, 1.0 by default.
        reason: the rule that rejects the document, or "".
        work: JSON of the cleaning results, or "": {"counts": {rule: paragraphs}, "dropped": [[rule, snippet]],
            "reported": [rules that report but do not reject]}. For a document that shares text with evaluation data,
            "contamination" has the fields for `rejected/*.jsonl`.
        line, byte, source_id: position and ID of the document in its file, as in `Document`.
    """

    id: bytes
    title: str
    source: str
    language: str
    text: str
    paragraphs: tuple[int, ...]
    origin: str
    weight: float
    reason: str
    work: str
    line: int = 0
    byte: int = -1
    source_id: str = ""

    def paragraph_texts(self) -> list[str]:
        """Return the paragraphs, with sentences joined by newlines."""
        sentences = iter(self.text.split("\n"))
        return ["\n".join(next(sentences) for _ in range(count)) for count in self.paragraphs]


_SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.binary()),
        ("title", pyarrow.string()),
        ("source", pyarrow.string()),
        ("language", pyarrow.string()),
        ("text", pyarrow.large_string()),
        ("paragraphs", pyarrow.list_(pyarrow.int32())),
        ("origin", pyarrow.string()),
        ("weight", pyarrow.float64()),
        ("reason", pyarrow.string()),
        ("work", pyarrow.string()),
        ("line", pyarrow.int64()),
        ("byte", pyarrow.int64()),
        ("source_id", pyarrow.string()),
    ]
)


def to_block(records: Iterable[Record]) -> bytes:
    """Return records as a compressed Arrow record batch.

    The schema is omitted because it is constant, and the batch is compressed as a whole. With many partitions, a block
    has one document of several kilobytes, and the overhead of an Arrow stream would double its size.
    """
    columns = zip(*records, strict=True)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA).serialize())
    return sink.getvalue().to_pybytes()


def from_block(block: bytes) -> list[Record]:
    """Return the records of a block from `to_block`."""
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(block), "zstd") as file:
        batch = pyarrow.ipc.read_record_batch(pyarrow.py_buffer(file.read()), _SCHEMA)
    columns = dict(zip(Record._fields, (column.to_pylist() for column in batch.columns), strict=True))
    columns["paragraphs"] = list(map(tuple, columns["paragraphs"]))
    return list(map(Record, *columns.values()))


@dataclasses.dataclass(frozen=True)
class BlockLocation:
    """The location of a block: `length` bytes of a file, from `offset` on."""

    path: str
    offset: int
    length: int


@dataclasses.dataclass(frozen=True)
class _BlockFile:
    """The JSON index of a block file: [key, offset, length] of each block, and a summary."""

    places: list[tuple[Any, Count, Count]]
    summary: dict[str, Any]


def read_blocks(blocks: Iterable[bytes | BlockLocation]) -> Iterator[Record]:
    """Yield the records of blocks, which are bytes or locations in block files."""
    for block in blocks:
        if isinstance(block, BlockLocation):
            with FileSystems.open(block.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
                file.seek(block.offset)
                content = file.read(block.length)
            try:
                yield from from_block(content)
            except (ValueError, OSError) as error:
                raise SourceError(f"{block.path} is corrupt; delete it and run the same command again") from error
        else:
            yield from from_block(block)


def write_block_file(path: str, blocks: Iterable[tuple[Any, bytes]], summary: dict[str, Any]) -> None:
    """Write blocks to a file, then its JSON index, which marks the file as complete.

    Args:
        path: the block file; the index is written to `path`.json.
        blocks: (key, block) pairs; keys are JSON serializable.
        summary: JSON object for the index; read after the last block, so that the iterator may fill it.
    """
    places = []
    with write_atomically(path) as file:
        for key, block in blocks:
            places.append([key, file.bytes, len(block)])
            file.write(block)
    write_text(f"{path}.json", json.dumps({"places": places, "summary": summary}))


def read_block_file(path: str) -> tuple[list[tuple[Any, BlockLocation]], dict[str, Any]] | None:
    """Return the keys and locations of the blocks of a file from `write_block_file`, and its summary.

    Returns None if the file is incomplete or was removed or changed.
    """
    try:
        content = decode(read_bytes(f"{path}.json"), _BlockFile)
        size = FileSystems.get_filesystem(path).size(path)
    except (OSError, JsonError, BeamIOError):
        return None
    ends = list(itertools.accumulate((length for _, _, length in content.places), initial=0))
    if [offset for _, offset, _ in content.places] != ends[:-1] or size != ends[-1]:
        return None
    locations = [(key, BlockLocation(path, offset, length)) for key, offset, length in content.places]
    return locations, content.summary
