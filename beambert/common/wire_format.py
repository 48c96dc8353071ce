"""Encode and decode the formats below TensorFlow's files: protocol buffers, and masked CRC-32C checksums.

Only the few messages that beambert writes and reads are supported. Sources:
https://protobuf.dev/programming-guides/encoding and tensorflow/core/lib/hash/crc32c.h.
"""

import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
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
        The number, below 2**64, and the position after it.

    Raises:
        ValueError: the varint is truncated, or longer than 64 bits.
    """
    number = 0
    for index, byte in enumerate(content[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if number >> 64:
                break
            return number, position + index + 1
    raise ValueError(f"the integer at byte {position} is not a varint of 64 bits")


def varint_field(field: int, number: int) -> bytes:
    """Encode an integer field; "" for 0, the default."""
    return varint(field << 3 | _VARINT) + varint(number) if number else b""


def fixed32_field(field: int, number: int) -> bytes:
    """Encode a fixed32 field; "" for 0, the default."""
    return varint(field << 3 | _FIXED32) + struct.pack("<I", number) if number else b""


def double_field(field: int, number: float) -> bytes:
    """Encode a double field."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", number)


def bytes_field(field: int, content: bytes) -> bytes:
    """Encode a field of bytes, a UTF-8 string, a message or packed numbers, also where it is empty."""
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of every field, in the order of the message.

    The value of a varint, fixed32 or fixed64 field is an unsigned integer, that of a length-delimited field is bytes.

    Raises:
        ValueError: the message is truncated or not valid.
    """
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            number, position = read_varint(message, position)
            yield tag >> 3, number
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _LENGTH_DELIMITED:
            size, position = read_varint(message, position)
        if size is None:
            raise ValueError(f"wire type {kind} before byte {position} is not valid")
        content = message[position : position + size]
        if len(content) < size:
            raise ValueError(f"the field at byte {position} is truncated")
        position += size
        yield tag >> 3, content if kind == _LENGTH_DELIMITED else int.from_bytes(content, "little")


def mask(crc: int) -> int:
    """Return the masked form of a CRC-32C, in which the formats store it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crc(content: Any) -> int:
    """Return the masked CRC-32C of a content, as TFRecord files, checkpoints and event files have it.

    Args:
        content: bytes, or a contiguous array of dtype uint8.
    """
    return mask(google_crc32c.value(content))
