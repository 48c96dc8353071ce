"""Test the sorted table of a checkpoint index; `test_tensor_bundle.py` compares checkpoints with TensorFlow's."""

import itertools
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.bert_model.checkpoints import sorted_table
from beambert.common.wire_format import masked_crc

ENTRIES = {b"": b"header", b"a": b"1", b"a/b": b"", b"a/bc": b"3" * 300, b"b": b"4"}
TABLE = sorted_table.encode(ENTRIES.items())


@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=20), min_size=1, max_size=50))
def test_entries_survive(entries):
    ordered = dict(sorted(entries.items()))
    assert list(sorted_table.decode(sorted_table.encode(ordered.items())).items()) == list(ordered.items())


def test_many_blocks_survive():
    entries = {f"layer_{number:06}/kernel".encode(): b"x" * 50 for number in range(20_000)}
    entries[b"m" * 600_000] = b"large"
    assert sorted_table.decode(sorted_table.encode(entries.items())) == entries


@given(st.data())
def test_a_changed_table_is_refused_or_has_the_same_entries(data):
    changed = bytearray(TABLE)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(TABLE) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        entries = sorted_table.decode(bytes(changed))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        # The metaindex block and the padding of the footer are not read.
        assert entries == ENTRIES


@pytest.mark.parametrize("size", range(len(TABLE)))
def test_a_truncated_table_is_refused(size):
    with pytest.raises(ValueError, match=r"truncated|checksum"):
        sorted_table.decode(TABLE[:size])


def table_of(*blocks: bytes, index: bytes | None = None) -> bytes:
    """Return a table of the given data blocks, with correct checksums."""
    content, positions = b"", []
    for block in [*blocks, index]:
        if block is None:
            keys = [bytes([97 + number]) for number in range(len(positions))]
            block = block_of(*((0, key, position) for key, position in zip(keys, positions, strict=True)))
        positions.append(sorted_table.varint(len(content)) + sorted_table.varint(len(block)))
        content += block + b"\0" + struct.pack("<I", masked_crc(block + b"\0"))
    footer = b"\0\0" + positions[-1]
    return content + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def block_of(*entries: tuple[int, bytes, bytes]) -> bytes:
    """Return a block of entries (number of shared bytes, rest of the key, value)."""
    varint = sorted_table.varint
    content = b"".join(
        varint(shared) + varint(len(key)) + varint(len(value)) + key + value for shared, key, value in entries
    )
    return content + struct.pack("<II", 0, 1)


def test_tables_made_here_are_read():
    assert sorted_table.decode(table_of(block_of((0, b"ab", b"1"), (1, b"c", b"2")))) == {b"ab": b"1", b"ac": b"2"}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (b"", "it is truncated, or not the index of a checkpoint"),
        (table_of(block_of((0, b"b", b""), (0, b"a", b""))), "its keys are not in ascending order"),
        (table_of(block_of((0, b"a", b"")), block_of((0, b"a", b""))), "its keys are not in ascending order"),
        (table_of(block_of((1, b"a", b""))), "an entry does not fit its block"),
        (table_of(b"\x00\xff\xff\xff\xff\x0f\x00" + struct.pack("<II", 0, 1)), "an entry does not fit its block"),
        (table_of(b"\x00\x01" + struct.pack("<II", 0, 1)), "an entry does not fit its block"),
        (table_of(block_of()), "a block is empty"),
        (table_of(b"abc"), "a block has no restart points"),
        (table_of(b"abc" + struct.pack("<I", 2**32 - 1)), "a block has no restart points"),
        (
            table_of(index=block_of((0, b"a", b"\xff\xff\xff\xff\x7f\x01"))),
            "the block at byte 34359738367 is truncated",
        ),
        (table_of(index=block_of((0, b"a", b"\x80"))), "the integer at byte 0 is not a varint of 64 bits"),
    ],
    ids=itertools.count(),
)
def test_invalid_tables_are_refused(table, reason):
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        sorted_table.decode(table)


def test_a_compressed_table_is_refused():
    block = block_of((0, b"a", b"1"))
    compressed = bytearray(table_of(block))
    compressed[len(block)] = 1
    compressed[len(block) + 1 : len(block) + 5] = struct.pack("<I", masked_crc(block + b"\1"))
    with pytest.raises(ValueError, match="it is compressed, and TensorFlow writes only uncompressed ones"):
        sorted_table.decode(bytes(compressed))


def test_shared_prefixes_do_not_expand_without_limit():
    # 1.3 MB of entries for keys of 300 GB in total.
    long_key = b"a" * 1_000_000
    entries = [(0, long_key, b""), *((1_000_000 + number, b"a", b"") for number in range(300_000))]
    with pytest.raises(ValueError, match=r"its entries have more than 268,435,456 bytes"):
        sorted_table.decode(table_of(block_of(*entries)))
