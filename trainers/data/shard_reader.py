"""Read records of shards by number, and find the corrupt ones among them.

A shard is read from front to end when it is opened, and kept in memory while its records are taken in any order: one
pass over the file, the same for compressed shards, and a file that vanishes meanwhile does no harm.
"""

import gzip
import itertools
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipelines.dataset import Dataset, Shard
from pipelines.errors import DatasetError
from pipelines.io.tfrecord import content_at, find_records
from trainers.data.example_order import Block

_CHUNK = 1 << 20


class CorruptRecordPolicy:
    """The action on corrupt records, and the records found corrupt.

    Args:
        skip: whether another record of the same shard takes the place of a corrupt one; otherwise it is an error.

    Attributes:
        error: what stopped the reader. TensorFlow passes on no exception of the reader's, so that it is kept here
            (`trainers.data.pipeline.reading_errors`).
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.error: Exception | None = None
        self._replaced: set[tuple[int, int]] = set()

    def record_replaced(self, step: int, position: int) -> None:
        """Record that the example of a step at a position was replaced; repeated calls count once."""
        self._replaced.add((step, position))

    def num_replaced_before(self, step: int) -> int:
        """Return the number of replaced examples of the steps before `step`, however far was read ahead."""
        return sum(of_step < step for of_step, _ in tuple(self._replaced))


class ShardRecords:
    """The records of one shard, in memory.

    Args:
        path: the file.
        shard: what the manifest says of it.
        compression: "none" or "gzip".
        skip: as of `CorruptRecordPolicy`.

    Raises:
        DatasetError: it cannot be read, it is damaged so that records cannot be separated, or it has another number of
            them than the manifest says. When corrupt records are skipped, only if none of its records can be found.
    """

    def __init__(self, path: Path, shard: Shard, compression: str, skip: bool) -> None:
        self._path = path
        self._skip = skip
        self._compressed = compression == "gzip"
        try:
            self._content = _decompressed(path) if self._compressed else path.read_bytes()
        except OSError as error:
            raise DatasetError(f"{path} cannot be read ({error}); copy it again or build the data again") from error
        self._frames = find_records(self._content)
        count, lost_at = len(self._frames.offsets), self._frames.lost_at
        whole = len(self._content) if lost_at is None else lost_at
        if count < shard.examples and (lost_at is not None or self._compressed):
            if not skip:
                raise self._corrupt(whole, "no record can be made out behind it")
        elif count != shard.examples:
            raise DatasetError(
                f"{path} holds {count} records, the manifest says {shard.examples}: it is not the file that was built; "
                "copy it again or build the data again"
            )
        if not count:
            raise self._unreadable()

    def record(self, number: int) -> tuple[bytes, bool]:
        """Return the content of a record, and whether it replaces a corrupt one.

        The next good record of the shard stands in for a corrupt one. Where the end of the shard cannot be read, the
        records before stand in for it, from the first on, each as often as the others.

        Raises:
            DatasetError: it is corrupt and corrupt records are not skipped, or the shard has no good one.
        """
        offsets, lengths, _ = self._frames
        first = number % len(offsets)
        for index in itertools.chain(range(first, len(offsets)), range(first)):
            content = content_at(self._content, offsets[index], lengths[index])
            if content is not None:
                return content, index != number
            if not self._skip:
                raise self._corrupt(offsets[index], "it does not fit its checksum")
        raise self._unreadable()

    def _corrupt(self, offset: int, problem: str) -> DatasetError:
        decompressed = " of its decompressed content" if self._compressed else ""
        return DatasetError(
            f"{self._path} is damaged: the record at byte {offset}{decompressed} is corrupt ({problem}); copy the file "
            "again or build the data again, or go on without such records with --on_corrupt_record skip"
        )

    def _unreadable(self) -> DatasetError:
        return DatasetError(f"{self._path} is damaged: it has no whole record; copy it again or build the data again")


class RecordStream:
    """The records of a sequence of blocks, by position, which may only grow.

    Args:
        directory: where the shards' names start.
        dataset: the manifest.
        blocks: in their order; the next is opened in the background while one is read.
        corrupt_records: what to do about corrupt records.
    """

    def __init__(
        self, directory: Path, dataset: Dataset, blocks: Iterator[Block], corrupt_records: CorruptRecordPolicy
    ) -> None:
        self._directory = directory
        self._compression = dataset.compression
        self._blocks = blocks
        self._corrupt_records = corrupt_records
        self._background = ThreadPoolExecutor(max_workers=1)
        self._next = self._open_next()
        self._current: _OpenBlock | None = None

    def read(self, first: int, count: int, step: int) -> list[bytes]:
        """Return the records at `count` positions from `first` on, for step `step`.

        Raises:
            DatasetError: what is there cannot be read.
        """
        records: list[bytes] = []
        while len(records) < count:
            position = first + len(records)
            while self._current is None or position >= self._current.block.end:
                if self._next is None:
                    raise IndexError(f"position {position} lies behind the last block")
                self._current = self._next.result()
                self._next = self._open_next()
            for content, is_other in self._current.records(position, first + count):
                if is_other:
                    self._corrupt_records.record_replaced(step, first + len(records))
                records.append(content)
        return records

    def _open_next(self) -> "Future[_OpenBlock] | None":
        block = next(self._blocks, None)
        if block is None:
            return None
        return self._background.submit(_OpenBlock, block, self._directory, self._compression, self._corrupt_records)


class _OpenBlock:
    def __init__(self, block: Block, directory: Path, compression: str, corrupt_records: CorruptRecordPolicy) -> None:
        self.block = block
        self._shards = [
            ShardRecords(directory / shard.name, shard, compression, corrupt_records.skip) for shard in block.shards
        ]
        self._shard_at, self._record_at = block.records()

    def records(self, first: int, end: int) -> Iterator[tuple[bytes, bool]]:
        """Return the records of the block at the positions from `first` to `end`."""
        places = slice(first - self.block.first, end - self.block.first)
        for shard, record in zip(self._shard_at[places].tolist(), self._record_at[places].tolist(), strict=True):
            yield self._shards[shard].record(record)


def _decompressed(path: Path) -> bytes:
    """Return the content of a gzip file as far as it can be read."""
    chunks = []
    with gzip.open(path) as file:
        try:
            while chunk := file.read(_CHUNK):
                chunks.append(chunk)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            pass
    return b"".join(chunks)
