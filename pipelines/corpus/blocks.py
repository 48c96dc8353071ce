"""Blocks of documents, the form in which documents are shuffled to their partition.

The shuffle transports either the blocks or their locations in block files. Block files are for runners that keep a
shuffle in memory. They also preserve the progress of a job that is killed.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.pipelines.corpus.options import Partition
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import is_written, read_marker, write_atomically, write_marker

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DOCUMENTS = msgspec.msgpack.Decoder(list[Document])


def to_block(documents: Iterable[Document]) -> bytes:
    """Return documents as a compressed block, with the same bytes for equal documents."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(_ENCODER.encode(documents))
    return sink.getvalue().to_pybytes()


def from_block(block: bytes) -> list[Document]:
    """Return the documents of a block from `to_block`.

    Raises:
        ValueError, OSError: the block is corrupt.
    """
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(block), "zstd") as file:
        return _DOCUMENTS.decode(file.read())


@dataclasses.dataclass(frozen=True)
class BlockLocation:
    """The location of a block: `length` bytes of a file, from `offset` on."""

    path: str
    offset: int
    length: int


def read_blocks(blocks: Iterable[bytes | BlockLocation]) -> Iterator[Document]:
    """Yield the documents of blocks, which are bytes or locations in block files.

    Raises:
        SourceError: a block in a file is corrupt.
    """
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


def write_block_file(path: str, blocks: Iterable[tuple[Partition, bytes]]) -> list[tuple[Partition, BlockLocation]]:
    """Write blocks to a file, and return their partitions and locations."""
    locations = []
    with write_atomically(path) as file:
        for partition, block in blocks:
            locations.append((partition, BlockLocation(path, file.bytes, len(block))))
            file.write(block)
    return locations


def write_block_marker(path: str, locations: list[tuple[Partition, BlockLocation]], summary: dict[str, Any]) -> None:
    """Write the completion marker of a block file, with a JSON object as summary."""
    places = [(partition, block.offset, block.length) for partition, block in locations]
    write_marker(f"{path}.json", [places, summary, sum(block.length for _, block in locations)])


def read_block_marker(path: str) -> tuple[list[tuple[Partition, BlockLocation]], dict[str, Any]] | None:
    """Return the partitions and locations of the blocks of a file, and its summary.

    Returns None if the file is incomplete or was removed or changed.
    """
    marker = read_marker(f"{path}.json", tuple[list[tuple[Partition, int, int]], dict[str, Any], int])
    if marker is None or not is_written(path, marker[2]):
        return None
    places, summary, _ = marker
    return [(partition, BlockLocation(path, offset, length)) for partition, offset, length in places], summary
