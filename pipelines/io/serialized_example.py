"""Parse serialized tf.train.Example messages in Python, without TensorFlow and Beam.

The messages are defined in tensorflow/core/example/example.proto and feature.proto. Lists may be packed or not.
"""

from collections.abc import Iterator

import numpy as np

_VARINT, _BYTES_8, _BYTES, _BYTES_4 = 0, 1, 2, 5
_BYTES_LIST, _INT64_LIST = 1, 3
_UINT64 = (1 << 64) - 1


def features_of(record: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the name of every feature of an example, in UTF-8, and its serialized tf.train.Feature in parts.

    Raises:
        ValueError: the message is not valid.
    """
    for features in _contents(record, 1):
        for entry in _contents(features, 1):
            yield (_contents(entry, 1) or [b""])[-1], _contents(entry, 2)


def lists_of(feature: list[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return the serialized BytesList, FloatList and Int64List messages of a feature.

    Raises:
        ValueError: the message is not valid.
    """
    lists: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    for part in feature:
        for field, kind, content in _fields(part):
            if kind == _BYTES and _BYTES_LIST <= field <= _INT64_LIST:
                lists[field - _BYTES_LIST].append(content)
    return lists


def floats(messages: list[bytes]) -> np.ndarray:
    """Return the values of FloatList messages: float32 [values].

    Raises:
        ValueError: a message is not valid.
    """
    contents = [content for message in messages for content in _list_contents(message, _BYTES_4)]
    if any(len(content) % 4 for content in contents):
        raise ValueError("a list of floats is incomplete")
    return np.frombuffer(b"".join(contents), "<f4").astype(np.float32)


def integers(messages: list[bytes]) -> np.ndarray:
    """Return the values of Int64List messages: int64 [values].

    Raises:
        ValueError: a message is not valid.
    """
    contents = [content for message in messages for content in _list_contents(message, _VARINT)]
    if any(content[-1] >= 0x80 for content in contents if content):
        raise ValueError("a varint is incomplete")
    octets = np.frombuffer(b"".join(contents), np.uint8)
    is_last = octets < 0x80
    if is_last.all():
        return octets.astype(np.int64)
    starts = np.concatenate([[0], np.flatnonzero(is_last[:-1]) + 1])
    index = np.arange(len(octets)) - np.repeat(starts, np.diff(np.append(starts, len(octets))))  # within the varint
    if index.max() > 9:
        raise ValueError("a varint has more than 10 bytes")
    groups = (octets & 0x7F).astype(np.uint64) << (7 * index).astype(np.uint64)
    return np.add.reduceat(groups, starts).view(np.int64)


def _list_contents(message: bytes, single: int) -> list[bytes]:
    """Return the contents of the packed lists and of the single values, which have wire type `single`."""
    return [content for field, kind, content in _fields(message) if field == 1 and kind in (_BYTES, single)]


def _contents(message: bytes, number: int) -> list[bytes]:
    """Return the contents of all submessages or strings with a field number."""
    return [content for field, kind, content in _fields(message) if field == number and kind == _BYTES]


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, wire type, content) of every field of a protobuf message; a varint is returned as its bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        start, kind = position, key & 7
        if kind == _VARINT:
            _, position = _varint(message, position)
        elif kind == _BYTES:
            length, start = _varint(message, position)
            position = start + length
        elif kind in (_BYTES_8, _BYTES_4):
            position += 8 if kind == _BYTES_8 else 4
        else:
            raise ValueError(f"field {key >> 3} has wire type {kind}")
        if position > len(message):
            raise ValueError(f"field {key >> 3} is longer than the message")
        yield key >> 3, kind, message[start:position]


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a varint, modulo 2**64 as the protocol buffer library, and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & _UINT64, position + index + 1
    raise ValueError("a varint is incomplete")
