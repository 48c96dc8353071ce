"""Encode and decode the formats below TensorFlow's files: protocol buffers, and masked CRC-32C checksums.

Only the few messages that beambert writes and reads are supported. Sources:
https://protobuf.dev/programming-guides/encoding and tensorflow/core/lib/hash/crc32c.h.
"""

import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_MAX_UINT64 = (1 << 64) - 1
# Bytes of the longest varint, of 64 bits.
_LONGEST_VARINT = 10


def varint(number: int) -> bytes:
    """Encode a non-negative integer below 2**64."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Decode a varint.

    Returns:
        The number, modulo 2**64 as the protocol buffer library has it, and the position after it.

    Raises:
        ValueError: the varint is truncated, or longer than 10 bytes.
    """
    number = 0
    for index, byte in enumerate(content[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number & _MAX_UINT64, position + index + 1
    raise ValueError(f"the integer at byte {position} is not a varint of 64 bits")


def varint_field(field: int, number: int) -> bytes:
    """Encode an integer field; "" for 0, the default."""
    return varint(field << 3 | VARINT) + varint(number) if number else b""


def fixed32_field(field: int, number: int) -> bytes:
    """Encode a fixed32 field; "" for 0, the default."""
    return varint(field << 3 | FIXED32) + struct.pack("<I", number) if number else b""


def double_field(field: int, number: float) -> bytes:
    """Encode a double field."""
    return varint(field << 3 | FIXED64) + struct.pack("<d", number)


def bytes_field(field: int, content: bytes) -> bytes:
    """Encode a field of bytes, a UTF-8 string, a message or packed numbers, also where it is empty."""
    return varint(field << 3 | LENGTH_DELIMITED) + varint(len(content)) + content


def raw_fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (field number, wire type, content) of every field, in the order of the message.

    The content of a varint, fixed32 or fixed64 field is its encoded bytes, that of a length-delimited field excludes
    the length.

    Raises:
        ValueError: the message is truncated or not valid.
    """
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        start, kind = position, tag & 7
        if kind == VARINT:
            _, position = read_varint(message, start)
        elif kind == LENGTH_DELIMITED:
            length, start = read_varint(message, start)
            position = start + length
        elif kind in _FIXED_BYTES:
            position += _FIXED_BYTES[kind]
        else:
            raise ValueError(f"wire type {kind} before byte {position} is not valid")
        if position > len(message):
            raise ValueError(f"the field at byte {start} is truncated")
        yield tag >> 3, kind, message[start:position]


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of every field, in the order of the message.

    The value of a varint, fixed32 or fixed64 field is an unsigned integer, that of a length-delimited field is bytes.

    Raises:
        ValueError: the message is truncated or not valid.
    """
    for field, kind, content in raw_fields(message):
        if kind == VARINT:
            yield field, read_varint(content, 0)[0]
        else:
            yield field, content if kind == LENGTH_DELIMITED else int.from_bytes(content, "little")


def mask(crc: int) -> int:
    """Return the masked form of a CRC-32C, in which the formats store it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crc(content: Any) -> int:
    """Return the masked CRC-32C of a content, as TFRecord files, checkpoints and event files have it.

    Args:
        content: bytes, or a contiguous array of dtype uint8.
    """
    return mask(google_crc32c.value(content))
