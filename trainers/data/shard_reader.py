"""Verify shards against the manifest, read their records by index, and detect corrupt records.

A shard is read into memory when it is opened, in a single pass and for compressed shards in the same way. Deleting the
file afterwards has no effect.
"""

import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from beambert.pipelines.dataset import Dataset, Shard
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.tfrecord import content_at, find_records
from beambert.trainers.buckets.dataset_copies import shard_path, shard_size
from beambert.trainers.data.example_order import Block

_CHUNK = 1 << 20


def check_sizes(directory: Path, shards: Sequence[Shard]) -> None:
    """Check the sizes of the shards against the manifest.

    Raises:
        DatasetError: a shard is missing, or its size differs from the manifest.
    """
    for shard in shards:
        path = directory / shard.name
        size = shard_size(directory, shard.name)
        if size is None:
            raise DatasetError(f"{path} is missing, but listed in the manifest; copy it again or build the data again")
        if size != shard.bytes:
            raise DatasetError(
                f"{path} has {size} bytes, but the manifest lists {shard.bytes}; copy it again or build the data again"
            )


def verify(directory: Path, dataset: Dataset, progress: Callable[[int, int], None] | None = None) -> None:
    """Verify the SHA-256 of every shard against the manifest (`--verify`).

    Args:
        directory: dataset directory.
        dataset: the manifest.
        progress: called regularly with the number of bytes read and the total number of bytes.

    Raises:
        DatasetError: shards are missing, of another size, or corrupt; the message lists all corrupt shards.
    """
    check_sizes(directory, dataset.shards)
    done, total = 0, sum(shard.bytes for shard in dataset.shards)
    corrupt_shards = []
    for shard in dataset.shards:
        digest = hashlib.sha256()
        try:
            with shard_path(directory, shard.name).open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)
        except OSError as error:
            raise DatasetError(
                f"{directory / shard.name} cannot be read ({error}); copy it again or build the data again"
            ) from error
        if digest.hexdigest() != shard.sha256:
            corrupt_shards.append(shard.name)
    if corrupt_shards:
        raise DatasetError(
            f"{directory}: {len(corrupt_shards)} of {len(dataset.shards)} shards are corrupt, with a SHA-256 "
            "other than in "
            f"the manifest ({', '.join(corrupt_shards)}); copy them again or build the data again"
        )


class CorruptRecordPolicy:
    """The action at corrupt records, and the corrupt records so far.

    Args:
        skip: whether to replace a corrupt record by another one of the same shard; otherwise it is an error.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self._replaced: set[tuple[int, int]] = set()

    def record_replaced(self, step: int, position: int) -> None:
        """Record that the example at a position of a step was replaced; repeated calls count once."""
        self._replaced.add((step, position))

    def num_replaced_before(self, step: int) -> int:
        """Return the number of replaced examples in the steps before `step`, without those read ahead."""
        return sum(of_step < step for of_step, _ in tuple(self._replaced))


class ShardRecords:
    """The records of a shard, in memory.

    Args:
        path: the file.
        shard: entry of the shard in the manifest.
        compression: "none" or "gzip".
        skip: as in `CorruptRecordPolicy`.

    Raises:
        DatasetError: the file cannot be read, record boundaries are corrupt, or the number of records differs from the
            manifest. If corrupt records are skipped, boundaries are an error only if the shard has no valid record.
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
        readable_bytes = len(self._content) if lost_at is None else lost_at
        if count < shard.examples and (lost_at is not None or self._compressed):
            if not skip:
                raise self._corrupt(readable_bytes, "no record boundary after it")
        elif count != shard.examples:
            raise DatasetError(
                f"{path} has {count} records, but the manifest lists {shard.examples}; copy it again or build the data "
                "again"
            )
        if not count:
            raise self._unreadable()

    def record(self, number: int) -> tuple[bytes, bool]:
        """Return the content of a record, and whether it replaces a corrupt one.

        A corrupt record is replaced by the next valid record of the shard. Records of an unreadable end of the shard
        are replaced by the records before, in order and equally often.

        Raises:
            DatasetError: the record is corrupt and corrupt records are not skipped, or the shard has no valid record.
        """
        offsets, lengths, _ = self._frames
        first = number % len(offsets)
        for index in itertools.chain(range(first, len(offsets)), range(first)):
            content = content_at(self._content, offsets[index], lengths[index])
            if content is not None:
                return content, index != number
            if not self._skip:
                raise self._corrupt(offsets[index], "checksum mismatch")
        raise self._unreadable()

    def _corrupt(self, offset: int, problem: str) -> DatasetError:
        decompressed = " of its decompressed content" if self._compressed else ""
        return DatasetError(
            f"{self._path} has a corrupt record at byte {offset}{decompressed} ({problem}); copy the file again, build "
            "the data again, or give --on_corrupt_record skip"
        )

    def _unreadable(self) -> DatasetError:
        return DatasetError(f"{self._path} has no valid record; copy it again or build the data again")


class RecordStream:
    """Read the records of a sequence of blocks by position, in increasing order.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        blocks: the blocks, in order; the next block is opened in the background.
        corrupt_records: action at corrupt records.
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
        """Return `count` records from position `first` on, for step `step`.

        Raises:
            DatasetError: a record cannot be read.
        """
        records: list[bytes] = []
        while len(records) < count:
            position = first + len(records)
            while self._current is None or position >= self._current.block.end:
                if self._next is None:
                    raise IndexError(f"position {position} is after the last block")
                self._current = self._next.result()
                self._next = self._open_next()
            for content, is_replacement in self._current.records(position, first + count):
                if is_replacement:
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
            ShardRecords(shard_path(directory, shard.name), shard, compression, corrupt_records.skip)
            for shard in block.shards
        ]
        self._shard_at, self._record_at = block.records()

    def records(self, first: int, end: int) -> Iterator[tuple[bytes, bool]]:
        """Yield the records of the block from position `first` to `end`, and whether each is a replacement."""
        selected = slice(first - self.block.first, end - self.block.first)
        for shard, record in zip(self._shard_at[selected].tolist(), self._record_at[selected].tolist(), strict=True):
            yield self._shards[shard].record(record)


def _decompressed(path: Path) -> bytes:
    """Return the readable part of a gzip file."""
    chunks = []
    with gzip.open(path) as file:
        try:
            while chunk := file.read(_CHUNK):
                chunks.append(chunk)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            pass
    return b"".join(chunks)
