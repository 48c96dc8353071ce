"""Encode batches of tf.train.Example records in TFRecord framing as a numpy matrix.

Features are those of `write_instance_to_example_files` in google-research/bert, so that the trainers of both projects
read the shards of both. Integers and list sizes have a fixed number of bytes, because a varint may have leading zero
groups. So all records have the same layout, and a batch is one uint8 matrix that is filled column by column, without
protobuf objects. For records without padding, the bytes of the padding are removed from the matrix.
"""

import dataclasses
import struct
from collections.abc import Iterable

import google_crc32c
import numpy as np

from beambert.pipelines.instances.options import PretrainingDataOptions


@dataclasses.dataclass(frozen=True)
class _Field:
    """The location of a feature in a padded record.

    Attributes:
        offset: offset of the first value in bytes.
        count: number of values, including padding.
        width: bytes per value.
        is_float: whether values are float32 instead of varints.
        sizes: (offset, width, value minus the bytes of the feature's values) of every varint that encodes a size.
    """

    offset: int
    count: int
    width: int
    is_float: bool
    sizes: tuple[tuple[int, int, int], ...]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint_width(max_value: int) -> int:
    return len(_varint(max_value))


def _write_varints(target: np.ndarray, values: np.ndarray, width: int) -> None:
    """Fill uint8 [n, count * width] with integers [n, count] that fit in `width` bytes each."""
    for byte in range(width - 1):
        target[:, byte::width] = (values >> (7 * byte)).astype(np.uint8) | 0x80
    target[:, width - 1 :: width] = values >> (7 * (width - 1)) if width > 1 else values


def _masked_crcs(chunks: Iterable[np.ndarray | bytes], count: int) -> np.ndarray:
    """Return TFRecord checksums, '<u4' [count]: masked CRC-32C (tensorflow/core/lib/hash/crc32c.h)."""
    crcs = np.fromiter(map(google_crc32c.value, chunks), dtype="<u4", count=count)
    return (crcs >> 15 | crcs << 17) + np.uint32(0xA282EAD8)


def mask_feature(name: str) -> str:
    """Return the feature with value 1 for content and 0 for padding of the feature `name`."""
    if name.startswith("masked_lm_"):
        return "masked_lm_weights"
    return "next_sentence_weights" if name.startswith("next_sentence_") else "input_mask"


class ExampleEncoder:
    """Encode batches of pretraining examples of one shape.

    Args:
        options: options of the examples: features, their names, and padding.
        row_length: length L of an example.
        vocab_size: number of tokens in the vocabulary.
    """

    def __init__(self, options: PretrainingDataOptions, row_length: int, vocab_size: int) -> None:
        lengths = {
            "input_mask": row_length,
            "masked_lm_weights": options.predictions_in(row_length),
            "next_sentence_weights": options.instances_per_row,
        }
        max_values = {
            "input_ids": vocab_size - 1,
            "sequence_ids": options.instances_per_row,
            "masked_lm_ids": vocab_size - 1,
            "masked_lm_positions": row_length - 1,
            "next_sentence_positions": row_length - 1,
        }
        record = b""
        self._ragged = options.ragged
        self._fields: dict[str, _Field] = {}
        for name, name_in_file in sorted(options.names_of_features().items(), key=lambda names: names[1]):
            count, is_float = lengths[mask_feature(name)], name.endswith("_weights")
            width = 4 if is_float else _varint_width(max_values.get(name, 1))
            # Features.feature is a map: entry { key = 1; value = 2: Feature { float_list = 2 or int64_list = 3 } }.
            # Field 1 of a list has the packed values.
            key = name_in_file.encode()
            tags = (b"\x0a", b"\x12" if is_float else b"\x1a", b"\x0a" + _varint(len(key)) + key + b"\x12", b"\x0a")
            header = b""
            sizes = []  # (bytes from the varint to the values, its width, ...) as in _Field
            for tag in tags:
                size = _varint(len(header) + count * width)
                sizes.append((len(size) + len(header), len(size), len(header)))
                header = tag + size + header
            offset = len(record) + len(header)
            size_fields = tuple((offset - before, width, more) for before, width, more in sizes)
            self._fields[name] = _Field(offset, count, width, is_float, size_fields)
            record += header + bytes(count * width)
        # Example.features, and the framing: length, its checksum, the Example, its checksum.
        size = _varint(len(record))
        start = 12 + 1 + len(size)
        self._fields = {
            name: dataclasses.replace(
                field,
                offset=field.offset + start,
                sizes=tuple((offset + start, width, more) for offset, width, more in field.sizes),
            )
            for name, field in self._fields.items()
        }
        self._values = sum(field.count * field.width for field in self._fields.values())
        self._example_size = (13, len(size), len(record) - self._values)
        length = struct.pack("<Q", start - 12 + len(record))
        record = length + _masked_crcs([length], 1).tobytes() + b"\x0a" + size + record + bytes(4)
        self._record = np.frombuffer(record, dtype=np.uint8)
        # Rows of the record, whose values each batch replaces.
        self._records = np.empty((0, len(record)), np.uint8)

    @property
    def record_bytes(self) -> int:
        """Return the size of a padded record in bytes, including the framing."""
        return len(self._record)

    def encode(self, features: dict[str, np.ndarray]) -> bytes:
        """Encode a batch as the bytes of consecutive TFRecord records.

        Args:
            features: padded arrays by feature: [n, L], [n, P] or [n, K], integers, or float32 for weights. To omit
                padding, it must include `mask_feature` of every feature.

        Raises:
            ValueError: the shape of a feature is wrong, or a value is too large.
        """
        content, starts, ends = self._frames(features)
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        checksums = _masked_crcs((content[start:end] for start, end in bounds), len(ends))
        content[ends[:, None] + np.arange(4)] = checksums[:, None].view(np.uint8)
        return content.tobytes()

    def serialize(self, features: dict[str, np.ndarray]) -> list[bytes]:
        """Return a batch as serialized tf.train.Example messages, without the framing of TFRecord.

        Args:
            features: as for `encode`.

        Raises:
            ValueError: the shape of a feature is wrong, or a value is too large.
        """
        content, starts, ends = self._frames(features)
        return [content[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _frames(self, features: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the TFRecord records of a batch, uint8 [bytes], without the checksums of their contents.

        Also returns where each content starts and ends: int64 [n], int64 [n].
        """
        rows = len(features["input_ids"])
        if rows > len(self._records):
            self._records = np.tile(self._record, (rows, 1))
        records = self._records[:rows]
        for name, field in self._fields.items():
            values = features[name]
            if values.shape != (rows, field.count):
                raise ValueError(f"invalid shape {values.shape} of {name}: must be {(rows, field.count)}")
            target = records[:, field.offset : field.offset + field.count * field.width]
            if field.is_float:
                target[:] = np.ascontiguousarray(values, dtype="<f4").view(np.uint8)
                continue
            if rows and (values.min() < 0 or int(values.max()) >> (7 * field.width)):
                raise ValueError(f"invalid value in {name}: must be at least 0 and fit in {field.width} varint bytes")
            _write_varints(target, values, field.width)
        if self._ragged:
            sizes = self._write_sizes(records, features)
            content = records[self._content(features, records.shape)]
        else:
            sizes = np.full(rows, self.record_bytes)
            content = records.reshape(-1)
        ends = np.cumsum(sizes)
        return content, ends - sizes + 12, ends - 4

    def _write_sizes(self, records: np.ndarray, features: dict[str, np.ndarray]) -> np.ndarray:
        """Write the sizes of lists without padding into records [n, ...], and return the record sizes: int64 [n]."""
        values = np.zeros(len(records), np.int64)
        for name, field in self._fields.items():
            size = np.count_nonzero(features[mask_feature(name)], axis=1) * field.width
            values += size
            for offset, width, more in field.sizes:
                _write_varints(records[:, offset : offset + width], (size + more)[:, None], width)
        offset, width, more = self._example_size
        _write_varints(records[:, offset : offset + width], (values + more)[:, None], width)
        sizes = values + self.record_bytes - self._values
        distinct, which = np.unique((sizes - 16).astype("<u8"), return_inverse=True)
        checksums = _masked_crcs(distinct.view(np.uint8).reshape(-1, 8), len(distinct))
        records[:, :8] = distinct[which, None].view(np.uint8)
        records[:, 8:12] = checksums[which, None].view(np.uint8)
        return sizes

    def _content(self, features: dict[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Return which bytes of the records are not padding: bool, of this shape."""
        content = np.ones(shape, bool)
        for name, field in self._fields.items():
            mask = features[mask_feature(name)] != 0
            content[:, field.offset : field.offset + field.count * field.width] = np.repeat(mask, field.width, axis=1)
        return content
