"""Recognize UTF-16 and UTF-32, which no reader supports, by the first bytes of a file.

This module imports only the standard library, so that the fine-tuning tasks can use it too.
"""

import codecs

# Number of bytes that suffice to recognize an encoding.
HEAD_BYTES = 4096
# UTF-32 first: the byte order mark of UTF-32-LE starts with that of UTF-16-LE.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# Minimum fraction of zeros among the bytes that are zero for ASCII; other characters may make up the rest.
_MIN_ZEROS = 0.4
# Maximum fraction of zeros among the other bytes, to exclude UTF-8 text with NUL characters.
_MAX_OTHER_ZEROS = 0.02


def wide_encoding(head: bytes) -> str:
    """Return "UTF-16", "UTF-32" or "", by the byte order mark of a file or by the zero bytes of its ASCII letters.

    Args:
        head: The first bytes of the file, at least 4 if it has them.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    head = head[: min(HEAD_BYTES, len(head) - len(head) % 4) or len(head)]
    if len(head) < 4 or 0 not in head:
        return ""
    fractions = [head[offset::4].count(0) / len(head[offset::4]) for offset in range(4)]
    for name, zero, other in (
        ("UTF-32", (1, 2, 3), (0,)),
        ("UTF-32", (0, 1, 2), (3,)),
        ("UTF-16", (1, 3), (0, 2)),
        ("UTF-16", (0, 2), (1, 3)),
    ):
        if min(fractions[n] for n in zero) > _MIN_ZEROS and max(fractions[n] for n in other) <= _MAX_OTHER_ZEROS:
            return name
    return ""
