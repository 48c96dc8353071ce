"""Hash words and n-grams of words with numpy, without a Python object per word."""

import functools
import re
import unicodedata

import numpy as np

_BLANK = 32
# Lower-cases ASCII letters, replaces other ASCII except digits by a space, and keeps non-ASCII bytes.
_TO_WORDS = bytes(ord(chr(byte).lower()) if chr(byte).isalnum() else _BLANK for byte in range(128)) + bytes(
    range(128, 256)
)
_ZERO_WIDTH_NON_JOINER, _ZERO_WIDTH_JOINER = "\u200c", "\u200d"
_ODD = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0xD6E8FEB86659FD93)


def _mix(values: np.ndarray) -> np.ndarray:
    """Spread every bit of uint64 values over all bits by SplitMix64's finisher (Steele et al. 2014)."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


# A value for each byte, and a weight for each position in a word, repeated every _WEIGHT_PERIOD positions.
_WEIGHT_PERIOD = 64
_BYTE_VALUES = _mix(np.arange(1, 257, dtype=np.uint64) * _ODD)
_POSITION_WEIGHTS = _mix(np.arange(1001, 1001 + _WEIGHT_PERIOD, dtype=np.uint64) * _ODD) | np.uint64(1)
# Masks of the first N of eight bytes.
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def word_spans(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and lengths in bytes of the words, separated by bytes up to 0x20: int64 [W] each."""
    letters = np.frombuffer(b" %b " % data, np.uint8) > _BLANK
    edges = np.flatnonzero(letters[1:] != letters[:-1])
    return edges[::2], edges[1::2] - edges[::2]


def count_words(data: bytes) -> int:
    """Return the number of words, separated by bytes up to 0x20."""
    letters = np.frombuffer(b" " + data, np.uint8) > _BLANK
    return int(np.count_nonzero(letters[1:] > letters[:-1]))


def word_keys(data: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each word, eight bytes at a time: uint64 [W].

    Takes a third of the time of `word_hashes`, on whose values the recorded results of MinHash depend.

    Args:
        data, starts, lengths: as for `word_hashes`.
    """
    eight_bytes = np.ndarray(len(data), "<u8", data + bytes(8), strides=(1,))  # from each position on
    keys = _mix(eight_bytes[starts] & _FIRST_BYTES[np.minimum(lengths, 8)])
    # The other bytes of long words, which are a quarter of the words.
    words = np.flatnonzero(lengths > 8)
    for offset in range(8, int(lengths.max(initial=0)), 8):
        words = words[lengths[words] > offset]
        inside = _FIRST_BYTES[np.minimum(lengths[words] - offset, 8)]
        keys[words] = _mix(keys[words] + (eight_bytes[starts[words] + offset] & inside))
    return keys


def word_hashes(data: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each word, stable across processes: uint64 [W].

    Args:
        data: a text in UTF-8.
        starts: int64 [W], from `word_spans`.
        lengths: int64 [W], from `word_spans`.
    """
    if not len(starts):
        return np.empty(0, np.uint64)
    values = _BYTE_VALUES[np.frombuffer(data, np.uint8)]  # [N]
    positions = np.arange(len(values), dtype=np.int64)
    positions[starts[0] :] -= np.repeat(starts, np.diff(starts, append=len(values)))
    positions &= _WEIGHT_PERIOD - 1
    values *= _POSITION_WEIGHTS[positions]
    # np.add.reduceat also sums the spaces after a word, which therefore are set to zero.
    values[np.frombuffer(data, np.uint8) <= _BLANK] = 0
    return _mix(np.add.reduceat(values, starts) + lengths.astype(np.uint64))


def plain_word_hashes(text: str) -> np.ndarray:
    """Return the hashes of the words of a text, lower case and without punctuation: uint64 [W]."""
    data = plain_bytes(text)
    return word_hashes(data, *word_spans(data))


def plain_words(text: str) -> list[str]:
    """Return the words that `plain_word_hashes` hashes."""
    return [word.decode("utf-8") for word in plain_bytes(text).split()]


@functools.cache
def _other_signs() -> re.Pattern[str]:
    """Return a pattern of the non-ASCII characters that are no letters, marks or digits."""
    # Combining marks (categories Mn and Mc), such as the vowel signs of Indic scripts and Thai, are not in Python's \w.
    # Variation selectors (0xFE00 to 0xFE0F, and those above 0x1FFFF) select the form of an emoji or ideograph, and are
    # no part of a word.
    marks = [
        chr(code)
        for code in range(0x300, 0x20000)
        if unicodedata.category(chr(code)) in ("Mn", "Mc") and not 0xFE00 <= code <= 0xFE0F
    ]
    basic = "".join(mark for mark in marks if mark <= "\uffff")
    other = "".join(mark for mark in marks if mark > "\uffff")
    # Python searches a class of many characters above 0xFFFF sequentially; it is tested only for characters above
    # 0xFFFF.
    return re.compile(rf"[^\x00-\x7f\w{basic}](?:(?<=[\0-\uffff])|(?<![{other}]))")


def plain_bytes(text: str) -> bytes:
    """Return a text as UTF-8, in lower case, with a space in place of all but letters, marks and digits.

    Zero-width joiners and non-joiners, which select the form of letters, are removed.
    """
    if not text.isascii():
        text = text.replace(_ZERO_WIDTH_NON_JOINER, "").replace(_ZERO_WIDTH_JOINER, "")
        text = _other_signs().sub(" ", text.lower())
    return text.encode("utf-8").translate(_TO_WORDS)


def ngram_keys(hashes: np.ndarray, length: int) -> np.ndarray:
    """Return a 64-bit hash of each n-gram of words.

    Args:
        hashes: uint64 [W], hashes of the words.
        length: n, the words of an n-gram.

    Returns:
        uint64 [W - length + 1], empty for W < length.
    """
    if len(hashes) < length:
        return np.empty(0, np.uint64)
    keys = hashes[: len(hashes) - length + 1].copy()
    for offset in range(1, length):
        keys *= _BASE
        keys += hashes[offset : offset + len(keys)]
    return keys
