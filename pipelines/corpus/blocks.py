"""Blocks of documents, the form in which documents are shuffled to their partition.

The shuffle transports either the blocks or their locations in block files. Block files are for runners that keep a
shuffle in memory. They also preserve the progress of a job that is killed.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert.common.typed_json import Count, JsonError, decode
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import read_bytes, write_atomically, write_text

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


@dataclasses.dataclass(frozen=True)
class _BlockFile:
    """The JSON index of a block file: [key, offset, length] of each block, and a summary."""

    places: list[tuple[Any, Count, Count]]
    summary: dict[str, Any]


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
