"""Recognize UTF-16 and UTF-32, which no reader takes, by the first bytes of a file.

It imports nothing but the standard library, so that the fine-tuning tasks may use it too.
"""

import codecs

# Bytes that are enough to recognize an encoding.
HEAD_BYTES = 4096
# Longer first: the mark of UTF-32-LE begins with that of UTF-16-LE.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# Share of zeros among the bytes that ASCII leaves zero: all of them, with room for other characters.
_ZEROS = 0.4
# Of the others, where text in UTF-8 that has some NUL characters has its letters.
_OTHER_ZEROS = 0.02


def wide_encoding(head: bytes) -> str:
    """Return "UTF-16" or "UTF-32" if a file is encoded so, by its mark or by the zeros of its ASCII letters, or "".

    Args:
        head: the first bytes of the file; at least 4, if it has them.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    head = head[: min(HEAD_BYTES, len(head) - len(head) % 4) or len(head)]
    if len(head) < 4 or 0 not in head:
        return ""
    shares = [head[place::4].count(0) / len(head[place::4]) for place in range(4)]
    for name, zero, other in (
        ("UTF-32", (1, 2, 3), (0,)),
        ("UTF-32", (0, 1, 2), (3,)),
        ("UTF-16", (1, 3), (0, 2)),
        ("UTF-16", (0, 2), (1, 3)),
    ):
        if min(shares[place] for place in zero) > _ZEROS and max(shares[place] for place in other) <= _OTHER_ZEROS:
            return name
    return ""
