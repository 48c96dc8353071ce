"""Batches of tf.train.Example records, encoded as a matrix, in TFRecord framing.

Features are those of `write_instance_to_example_files` in google-research/bert, so that either project's trainer reads
either's shards. Integers are written in a fixed number of bytes (a varint may have leading zero groups), and so are
the sizes of lists: every record has the same layout, and a batch is one uint8 matrix, filled column by column, without
protobuf objects. Records without padding are the same matrix, from which the padding's bytes are taken out.
"""

import dataclasses
import struct
from collections.abc import Iterable

import google_crc32c
import numpy as np

from pipelines.instances.options import PretrainingDataOptions


@dataclasses.dataclass(frozen=True)
class _Field:
    """Where one feature lies in a padded record.

    Attributes:
        offset: its first value's byte.
        count: values with padding.
        width: bytes of a value.
        is_float: float32 rather than varints.
        sizes: (offset, width, how much more than the bytes of values) of every varint that depends on them.
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
    """Fill uint8 [n, count * width] with integers [n, count] of `width` bytes each."""
    for place in range(width):
        group = (values >> (7 * place)).astype(np.uint8) & 0x7F
        target[:, place::width] = group if place == width - 1 else group | 0x80


def _masked_crcs(chunks: Iterable[np.ndarray | bytes], count: int) -> np.ndarray:
    """Return TFRecord's checksums, '<u4' [count]: CRC-32C, rotated and offset (tensorflow/core/lib/hash/crc32c.h)."""
    crcs = np.fromiter(map(google_crc32c.value, chunks), dtype="<u4", count=count)
    return (crcs >> 15 | crcs << 17) + np.uint32(0xA282EAD8)


def mask_of(name: str) -> str:
    """Return the feature whose values are 1 for content and 0 for padding of the feature `name`."""
    if name.startswith("masked_lm_"):
        return "masked_lm_weights"
    return "next_sentence_weights" if name.startswith("next_sentence_") else "input_mask"


class ExampleEncoder:
    """Encodes batches of pretraining examples of one shape.

    Args:
        options: which features there are, their names, and whether padding is left out.
        row_length: L.
        vocab_size: number of tokens in the vocabulary; every id is below it.
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
            count, is_float = lengths[mask_of(name)], name.endswith("_weights")
            width = 4 if is_float else _varint_width(max_values.get(name, 1))
            # Features.feature is a map: entry { key = 1; value = 2: Feature { float_list = 2 or int64_list = 3 } },
            # and a list holds its packed values in field 1.
            key = name_in_file.encode()
            tags = (b"\x0a", b"\x12" if is_float else b"\x1a", b"\x0a" + _varint(len(key)) + key + b"\x12", b"\x0a")
            header = b""
            sizes = []  # (bytes from the varint to the values, its width, ...) as in _Field
            for tag in tags:
                size = _varint(len(header) + count * width)
                sizes.append((len(size) + len(header), len(size), len(header)))
                header = tag + size + header
            offset = len(record) + len(header)
            places = tuple((offset - before, width, more) for before, width, more in sizes)
            self._fields[name] = _Field(offset, count, width, is_float, places)
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

    @property
    def record_bytes(self) -> int:
        """Return the size of a record with padding, including its framing."""
        return len(self._record)

    def encode(self, features: dict[str, np.ndarray]) -> bytes:
        """Encode a batch as the bytes of consecutive TFRecord records.

        Args:
            features: arrays by our own names, integers or for weights float32: [n, L], [n, P] or [n, K], with padding.
                Without padding, `mask_of` every feature is among them.

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
            _write_varints(target, values, field.width)
        if self._ragged:
            sizes = self._write_sizes(records, features)
            content = records[self._content(features, records.shape)]
        else:
            sizes = np.full(rows, self.record_bytes)
            content = records.reshape(-1)
        ends = np.cumsum(sizes)
        places = zip((ends - sizes + 12).tolist(), (ends - 4).tolist(), strict=True)
        checksums = _masked_crcs((content[start:end] for start, end in places), rows)
        content[ends[:, None] - np.arange(4, 0, -1)] = checksums[:, None].view(np.uint8)
        return content.tobytes()

    def _write_sizes(self, records: np.ndarray, features: dict[str, np.ndarray]) -> np.ndarray:
        """Write the sizes of lists without padding into records [n, ...]; return those of the records, int64 [n]."""
        values = np.zeros(len(records), np.int64)
        for name, field in self._fields.items():
            size = np.count_nonzero(features[mask_of(name)], axis=1) * field.width
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
        """Return which bytes of records of a shape are not padding: bool."""
        content = np.ones(shape, bool)
        for name, field in self._fields.items():
            mask = features[mask_of(name)] != 0
            content[:, field.offset : field.offset + field.count * field.width] = np.repeat(mask, field.width, axis=1)
        return content
