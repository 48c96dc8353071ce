"""Batches of tf.train.Example records, encoded as a matrix, in TFRecord framing.

Feature names and types are those of `write_instance_to_example_files` in google-research/bert, so that either
project's trainer reads either's shards. Every example of a dataset has the same features of the same lengths; with
integers written in a fixed number of bytes (a varint may have leading zero groups) every record has the same layout,
and a batch is one uint8 matrix, filled column by column, without protobuf objects.
"""

import dataclasses
import struct

import google_crc32c
import numpy as np


@dataclasses.dataclass(frozen=True)
class _Field:
    """Where one feature's values lie in a record: `count` values of `width` bytes from byte `offset` on."""

    offset: int
    count: int
    width: int
    is_float: bool


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint_width(max_value: int) -> int:
    return len(_varint(max_value))


def _masked_crc(data: bytes) -> int:
    """TFRecord's checksum: CRC-32C, rotated and offset (tensorflow/core/lib/hash/crc32c.h)."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class ExampleEncoder:
    """Encodes batches of pretraining examples of one shape.

    Args:
        vocab_size: number of pieces; every id is below it.
        max_seq_length: L.
        max_predictions_per_seq: P.
    """

    def __init__(self, vocab_size: int, max_seq_length: int, max_predictions_per_seq: int) -> None:
        id_width = _varint_width(vocab_size - 1)
        position_width = _varint_width(max_seq_length - 1)
        shapes = {
            "input_ids": (max_seq_length, id_width, False),
            "input_mask": (max_seq_length, 1, False),
            "masked_lm_ids": (max_predictions_per_seq, id_width, False),
            "masked_lm_positions": (max_predictions_per_seq, position_width, False),
            "masked_lm_weights": (max_predictions_per_seq, 4, True),
            "next_sentence_labels": (1, 1, False),
            "segment_ids": (max_seq_length, 1, False),
        }
        entries: list[tuple[str, bytes, bytes, _Field]] = []
        size = 0
        for name, (count, width, is_float) in shapes.items():
            # Features.feature is a map: entry { key = 1; value = 2: Feature { float_list = 2 or int64_list = 3 } },
            # and a list holds its packed values in field 1.
            values_header = b"\x0a" + _varint(count * width)
            list_header = (b"\x12" if is_float else b"\x1a") + _varint(len(values_header) + count * width)
            feature_length = len(list_header) + len(values_header) + count * width
            key = name.encode()
            entry_body = (
                b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(feature_length) + list_header + values_header
            )
            header = b"\x0a" + _varint(len(entry_body) + count * width) + entry_body
            field = _Field(size + len(header), count, width, is_float)
            entries.append((name, header, bytes(count * width), field))
            size += len(header) + count * width
        example_header = b"\x0a" + _varint(size)
        self._fields = {
            name: dataclasses.replace(field, offset=field.offset + len(example_header) + 12)
            for name, _, _, field in entries
        }
        example = example_header + b"".join(header + values for _, header, values, _ in entries)
        length = struct.pack("<Q", len(example))
        record = length + struct.pack("<I", _masked_crc(length)) + example + bytes(4)
        self._record = np.frombuffer(record, dtype=np.uint8)

    @property
    def record_bytes(self) -> int:
        """Size of every record, its framing included."""
        return len(self._record)

    def encode(self, features: dict[str, np.ndarray]) -> bytes:
        """Encodes a batch as the bytes of consecutive TFRecord records.

        Args:
            features: the seven arrays by name; integers [n, L], [n, P] or [n, 1], masked_lm_weights float32 [n, P].

        Raises:
            ValueError: a feature has another shape than the encoder was made for, or an id does not fit.
        """
        rows = len(features["input_ids"])
        records = np.tile(self._record, (rows, 1))
        for name, field in self._fields.items():
            values = features[name]
            if values.shape != (rows, field.count):
                raise ValueError(f"{name} has shape {values.shape}, not {(rows, field.count)}")
            target = records[:, field.offset : field.offset + field.count * field.width]
            if field.is_float:
                target[:] = np.ascontiguousarray(values, dtype="<f4").view(np.uint8)
                continue
            if rows and (values.min() < 0 or int(values.max()) >> (7 * field.width)):
                raise ValueError(f"{name} holds a value that does not fit {field.width} varint bytes")
            for place in range(field.width):
                group = (values >> (7 * place)).astype(np.uint8) & 0x7F
                target[:, place :: field.width] = group if place == field.width - 1 else group | 0x80
        end = self.record_bytes - 4
        checksums = np.fromiter((_masked_crc(row[12:end].tobytes()) for row in records), dtype="<u4", count=rows)
        records[:, end:] = checksums[:, None].view(np.uint8)
        return records.tobytes()
