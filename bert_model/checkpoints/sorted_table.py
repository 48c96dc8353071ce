"""Encode and decode sorted tables, the format of `PREFIX.index` of a TensorFlow checkpoint.

A table maps bytes to bytes. It consists of data blocks, an empty metaindex block, an index block with the position of
each data block, and a footer. In a block, a key is stored without the prefix it shares with the previous key, except at
restart points. Every block ends with its compression type and checksum.

Source: tensorflow/core/lib/io (table_builder.cc, block.cc, format.h), derived from LevelDB's doc/table_format.md.
"""

import struct
from collections.abc import Iterable, Iterator

from beambert.common.wire_format import masked_crc, read_varint, varint

_BLOCK_BYTES = 262_144
_RESTART_INTERVAL = 16
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_UNCOMPRESSED = 0
# Shared prefixes let a small file expand to many bytes; the tables of checkpoints have a few kilobytes.
_MOST_BYTES = 1 << 28


def encode(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the table that TensorFlow writes for (key, value) pairs, uncompressed.

    Args:
        entries: at least one pair, in ascending order of the keys.
    """
    table = bytearray()
    index = _Block(restart_interval=1)
    block = _Block(_RESTART_INTERVAL)
    position, last_key = b"", b""
    for key, value in entries:
        if block.content and len(key) + len(value) >= 2 * _BLOCK_BYTES:
            position = _append_block(table, block)
            block = _Block(_RESTART_INTERVAL)
        if position:
            index.add(_separator(last_key, key), position)
            position = b""
        block.add(key, value)
        last_key = key
        if block.size() >= _BLOCK_BYTES:
            position = _append_block(table, block)
            block = _Block(_RESTART_INTERVAL)
    if block.content:
        position = _append_block(table, block)
    metaindex = _append_block(table, _Block(_RESTART_INTERVAL))
    index.add(_successor(last_key), position)
    footer = metaindex + _append_block(table, index)
    table += footer.ljust(_FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", _MAGIC)
    return bytes(table)


def decode(table: bytes) -> dict[bytes, bytes]:
    """Return the values of a table by key, in ascending order of the keys.

    Raises:
        ValueError: the table is truncated, corrupt or compressed; the message is the reason.
    """
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("it is truncated, or not the index of a checkpoint")
    entries: dict[bytes, bytes] = {}
    last_key, total = b"", 0
    # The metaindex block, whose position comes first, has no entries.
    _, index_at = _position(footer, 0)
    for _, position in _entries(_block(table, footer, index_at)):
        for key, value in _entries(_block(table, position, 0)):
            if entries and key <= last_key:
                raise ValueError("its keys are not in ascending order")
            total += len(key) + len(value)
            if total > _MOST_BYTES:
                raise ValueError(f"its entries have more than {_MOST_BYTES:,} bytes")
            entries[key] = value
            last_key = key
    return entries


class _Block:
    """A block under construction."""

    def __init__(self, restart_interval: int) -> None:
        self.content = bytearray()
        self._restart_interval = restart_interval
        self._restarts = [0]
        self._keys_since_restart = 0
        self._last_key = b""

    def add(self, key: bytes, value: bytes) -> None:
        """Append an entry."""
        shared = 0
        if self._keys_since_restart < self._restart_interval:
            shared = _shared_length(self._last_key, key)
        else:
            self._restarts.append(len(self.content))
            self._keys_since_restart = 0
        self.content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._last_key = key
        self._keys_since_restart += 1

    def size(self) -> int:
        """Return the number of bytes of `to_bytes`."""
        return len(self.content) + 4 * len(self._restarts) + 4

    def to_bytes(self) -> bytes:
        """Return the entries, the offsets of the restart points, and their number."""
        count = len(self._restarts)
        return bytes(self.content) + struct.pack(f"<{count + 1}I", *self._restarts, count)


def _append_block(table: bytearray, block: _Block) -> bytes:
    """Append a block with its trailer; return its encoded position: offset and size."""
    content = block.to_bytes()
    position = varint(len(table)) + varint(len(content))
    content += bytes([_UNCOMPRESSED])
    table += content + struct.pack("<I", masked_crc(content))
    return position


def _shared_length(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix of two keys."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _separator(key: bytes, next_key: bytes) -> bytes:
    """Return a short key that is not before `key` and before `next_key`, as TensorFlow chooses it."""
    shared = _shared_length(key, next_key)
    # A byte of 255 is not before that of the next key.
    if shared < len(key) and key[shared] + 1 < next_key[shared]:
        return key[:shared] + bytes([key[shared] + 1])
    return key


def _successor(key: bytes) -> bytes:
    """Return a short key that is not before `key`, as TensorFlow chooses it."""
    for index, byte in enumerate(key):
        if byte != 0xFF:
            return key[:index] + bytes([byte + 1])
    return key


def _position(content: bytes, start: int) -> tuple[tuple[int, int], int]:
    """Decode the position of a block; return its offset and size, and the end of the position."""
    offset, start = read_varint(content, start)
    size, start = read_varint(content, start)
    return (offset, size), start


def _block(table: bytes, position: bytes, start: int) -> bytes:
    """Return the verified content of the block at an encoded position, without its trailer."""
    (offset, size), _ = _position(position, start)
    stored = table[offset : offset + size + _TRAILER_BYTES]
    if len(stored) < size + _TRAILER_BYTES:
        raise ValueError(f"the block at byte {offset} is truncated")
    if masked_crc(stored[:-4]) != struct.unpack("<I", stored[-4:])[0]:
        raise ValueError(f"the block at byte {offset} does not match its checksum")
    if stored[-_TRAILER_BYTES] != _UNCOMPRESSED:
        raise ValueError("it is compressed, and TensorFlow writes only uncompressed ones")
    return stored[:-_TRAILER_BYTES]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) pairs of a block."""
    (restarts,) = struct.unpack("<I", block[-4:]) if len(block) >= 4 else (0,)
    end = len(block) - 4 * (restarts + 1)
    if not restarts or end < 0:
        raise ValueError("a block has no restart points")
    if not end:
        # Many references to such a block would take long to check and yield nothing.
        raise ValueError("a block is empty")
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        value_size, position = read_varint(block, position)
        value_at = position + unshared
        if shared > len(key) or value_at + value_size > end:
            raise ValueError("an entry does not fit its block")
        key = key[:shared] + block[position:value_at]
        position = value_at + value_size
        yield key, block[value_at:position]
