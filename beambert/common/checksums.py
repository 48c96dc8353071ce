"""The masked CRC-32C checksum of TensorFlow's file formats: TFRecord, checkpoints and event files.

Source: tensorflow/core/lib/hash/crc32c.h.
"""

from typing import Any

import google_crc32c


def mask(crc: int) -> int:
    """Return the masked form of a CRC-32C, in which the formats store it."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crc(content: Any) -> int:
    """Return the masked CRC-32C of a content.

    Args:
        content: bytes, or a contiguous array of dtype uint8.
    """
    return mask(google_crc32c.value(content))
