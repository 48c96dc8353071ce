"""A document between reading and its partition, and blocks of them as bytes.

Documents reach their partition in blocks, compressed and many at a time. The engine's shuffle carries the blocks.
Or they stay in a file, and the engine carries the place of each. The files serve an engine that would hold a shuffle in
memory, and they keep what a killed job had read already.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert_common.typed_json import Count, JsonError, decode
from pipelines.errors import SourceError
from pipelines.io.atomic_files import read_bytes, write_atomically, write_text


class Record(NamedTuple):
    """One document, cleaned and segmented.

    Attributes:
        id: its identity, 16 bytes.
        title, source, language: as in the corpus.
        text: its sentences, a line each.
        paragraphs: how many of the sentences each paragraph has.
        origin: the --input pattern that its file was found by.
        weight: how often it is packed, 1.0 unless its input was given another.
        reason: why it is rejected, or "".
        work: JSON of what cleaning did to it, or "": {"counts": {rule: paragraphs}, "dropped": [[rule, snippet]],
            "reported": [rule for which it would have been left out]}; of a document that shares text with evaluation
            data also "contamination", what `rejected/*.jsonl` says of that.
        line, source_id: where it begins in its file and what identifies it for the user, as in `Document`.
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
    source_id: str = ""

    def paragraph_texts(self) -> list[str]:
        """Return the paragraphs, their sentences joined by line ends."""
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
        ("source_id", pyarrow.string()),
    ]
)


def to_block(records: Iterable[Record]) -> bytes:
    """Return records as a compressed Arrow record batch.

    The schema, the same in every reader, is left out, and the batch is compressed as a whole. With many partitions a
    block holds one document of a few kilobytes: an Arrow stream would double its size.
    """
    columns = zip(*records, strict=True)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA).serialize())
    return sink.getvalue().to_pybytes()


def from_block(block: bytes) -> list[Record]:
    """Return the records of `to_block`."""
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(block), "zstd") as file:
        batch = pyarrow.ipc.read_record_batch(pyarrow.py_buffer(file.read()), _SCHEMA)
    columns = dict(zip(Record._fields, (column.to_pylist() for column in batch.columns), strict=True))
    columns["paragraphs"] = list(map(tuple, columns["paragraphs"]))
    return list(map(Record, *columns.values()))


@dataclasses.dataclass(frozen=True)
class BlockPlace:
    """The place of a block: `length` bytes from `offset` of a file."""

    path: str
    offset: int
    length: int


@dataclasses.dataclass(frozen=True)
class _BlockFile:
    """The JSON beside a file of blocks: [key, offset, length] of each, and what `write_block_file` was given."""

    places: list[tuple[Any, Count, Count]]
    summary: dict[str, Any]


def read_blocks(blocks: Iterable[bytes | BlockPlace]) -> Iterator[Record]:
    """Return the records of blocks, reading those that are in files."""
    for block in blocks:
        if isinstance(block, BlockPlace):
            with FileSystems.open(block.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
                file.seek(block.offset)
                content = file.read(block.length)
            try:
                yield from from_block(content)
            except (ValueError, OSError) as error:
                raise SourceError(f"{block.path} is damaged; delete it and run the same command again") from error
        else:
            yield from from_block(block)


def write_block_file(path: str, blocks: Iterable[tuple[Any, bytes]], summary: dict[str, Any]) -> None:
    """Write blocks to a file and, last, the JSON beside it that marks it complete.

    Args:
        path: the file.
        blocks: (key, block); keys of JSON's types.
        summary: JSON to keep with them, as it is when the last block has been drawn.
    """
    places = []
    with write_atomically(path) as file:
        for key, block in blocks:
            places.append([key, file.bytes, len(block)])
            file.write(block)
    write_text(f"{path}.json", json.dumps({"places": places, "summary": summary}))


def read_block_file(path: str) -> tuple[list[tuple[Any, BlockPlace]], dict[str, Any]] | None:
    """Return the keys and places of the blocks that `write_block_file` wrote, and its summary.

    None if the writing did not finish, or one of the files was removed or changed since.
    """
    try:
        content = decode(read_bytes(f"{path}.json"), _BlockFile)
        size = FileSystems.get_filesystem(path).size(path)
    except (OSError, JsonError, BeamIOError):
        return None
    ends = list(itertools.accumulate((length for _, _, length in content.places), initial=0))
    if [offset for _, offset, _ in content.places] != ends[:-1] or size != ends[-1]:
        return None
    places = [(key, BlockPlace(path, offset, length)) for key, offset, length in content.places]
    return places, content.summary
