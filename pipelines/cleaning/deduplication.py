"""Find near-duplicate documents (MinHash) and repeated paragraphs, as functions on arrays of hashes.

Near-duplicates are found by MinHash (Broder 1997) with locality-sensitive hashing: 5-gram shingles, 14 bands of 8 rows.
Two documents share a band with probability 0.5 at a Jaccard similarity of about 0.7. Such candidates are compared by
all 112 values before a document is dropped.

Of two near-duplicates, the document with the smaller ID is kept; the ID depends on the text alone. A document is
dropped even if its near-duplicate is dropped because of a third document. The smallest ID of a cluster is always kept,
but the two ends of a chain of near-duplicates may differ from each other.
"""

import hashlib

import numpy as np

from beambert.pipelines.cleaning.ngrams import ngram_keys, plain_word_hashes
from beambert.tokenizer.normalization import prepare_chunks

SHINGLE_WORDS = 5
BANDS = 14
BAND_ROWS = 8
PERMUTATIONS = BANDS * BAND_ROWS
# Minimum fraction of equal MinHash values of near-duplicates.
SIMILARITY = 0.7
# Shorter paragraphs ("See the table below.") are legitimate in any number of documents.
MIN_PARAGRAPH_WORDS = 8
# Maximum documents of a band that the other documents of the band are compared with.
_LEADERS = 16

_GENERATOR = np.random.Generator(np.random.PCG64(20181011))
# [bands, rows, 1]
_FACTORS = _GENERATOR.integers(1, 2**63, (BANDS, BAND_ROWS, 1), np.uint64) * np.uint64(2) + np.uint64(1)
_SUMMANDS = _GENERATOR.integers(0, 2**63, (BANDS, BAND_ROWS, 1), np.uint64)
_BAND_WEIGHTS = _GENERATOR.integers(1, 2**63, (BANDS, BAND_ROWS), np.uint64) * np.uint64(2) + np.uint64(1)


def _word_hashes(text: str) -> np.ndarray:
    """Return the word hashes of a text, lower case and without punctuation; ideographs are words: uint64 [W]."""
    return plain_word_hashes(prepare_chunks([text])[0])


def signature(text: str) -> np.ndarray | None:
    """Return the MinHash signature of a text.

    Returns:
        uint32 [PERMUTATIONS]; the fraction of equal values of two texts estimates the Jaccard similarity of their
        5-gram shingles. None for a text of fewer than five words.
    """
    shingles = ngram_keys(_word_hashes(text), SHINGLE_WORDS)
    if not len(shingles):
        return None
    minima = [
        (shingles * factors + summands).min(axis=-1)  # [rows, shingles] -> [rows]
        for factors, summands in zip(_FACTORS, _SUMMANDS, strict=True)
    ]
    return (np.concatenate(minima) >> np.uint64(32)).astype(np.uint32)


def band_keys(signatures: np.ndarray) -> np.ndarray:
    """Return a hash of each band of each signature; documents with a common band are candidates.

    Args:
        signatures: uint32 [D, PERMUTATIONS].

    Returns:
        uint64 [D, BANDS].
    """
    bands = signatures.reshape(-1, BANDS, BAND_ROWS).astype(np.uint64)  # [D, bands, rows]
    return ((bands + np.uint64(1)) * _BAND_WEIGHTS).sum(axis=-1, dtype=np.uint64) ^ np.arange(BANDS, dtype=np.uint64)


def sketch(signatures: np.ndarray) -> np.ndarray:
    """Return the lowest byte of each MinHash value (Li and Koenig 2010): uint8, in the shape of signatures."""
    return (signatures & np.uint32(0xFF)).astype(np.uint8)


def near_duplicates(keys: np.ndarray, ids: np.ndarray, sketches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the documents to drop, each with the near-duplicate that is kept instead.

    Args:
        keys: uint64 [N], band keys from `band_keys`, up to BANDS per document.
        ids: uint64 [N, 2], document ID of each key.
        sketches: uint8 [N, PERMUTATIONS], sketch of the document of each key, from `sketch`.

    Returns:
        (dropped, kept): int64 [M] each, indices into the arguments. The ID of a kept document is smaller than that of
        the dropped one. A document may occur several times in `dropped`.
    """
    order = np.lexsort((ids[:, 1], ids[:, 0], keys))
    starts = _run_starts(keys[order])
    dropped: list[np.ndarray] = []
    kept: list[np.ndarray] = []
    for start, end in zip(starts, np.append(starts, len(order))[1:], strict=True):
        members = order[start:end]
        for _ in range(_LEADERS):
            if len(members) < 2:
                break
            leader, members = members[0], members[1:]
            members = members[(ids[members] != ids[leader]).any(axis=-1)]
            agreeing = (sketches[members] == sketches[leader]).mean(axis=-1)
            # One byte in 256 is equal by chance.
            is_duplicate = (agreeing - 1 / 256) / (1 - 1 / 256) >= SIMILARITY
            dropped.append(members[is_duplicate])
            kept.append(np.full(int(is_duplicate.sum()), leader, np.int64))
            members = members[~is_duplicate]
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *dropped]), np.concatenate([empty, *kept])


def _run_starts(ordered: np.ndarray) -> np.ndarray:
    """Return the start indices of runs of equal values."""
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(first)


def paragraph_key(paragraph: str) -> int | None:
    """Return a 64-bit hash of a paragraph's words, ignoring case and punctuation, or None if it is too short."""
    hashes = _word_hashes(paragraph)
    if len(hashes) < MIN_PARAGRAPH_WORDS:
        return None
    return int(ngram_keys(hashes, len(hashes))[0])


def duplicate_keys(keys: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries whose key a document with a smaller ID has too, and that document.

    Args:
        keys: uint64 [N].
        ids: uint64 [N, 2], document ID of each key.

    Returns:
        (dropped, kept): int64 [M] each, indices into the arguments.
    """
    order = np.lexsort((ids[:, 1], ids[:, 0], keys))
    starts = _run_starts(keys[order])
    owner = order[np.repeat(starts, np.diff(starts, append=len(keys)))]
    is_other = (ids[order] != ids[owner]).any(axis=-1)
    return order[is_other], owner[is_other]


def frequent_keys(keys: np.ndarray, ids: np.ndarray, minimum: int) -> np.ndarray:
    """Return which entries have a key that at least `minimum` documents have.

    Args:
        keys: uint64 [N]; a document may have a key several times.
        ids: uint64 [N, 2], document ID of each key.
        minimum: number of documents.

    Returns:
        bool [N].
    """
    order = np.lexsort((ids[:, 1], ids[:, 0], keys))
    sorted_keys, sorted_ids = keys[order], ids[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (sorted_ids[1:] != sorted_ids[:-1]).any(axis=-1)
    starts = _run_starts(sorted_keys)
    documents = np.add.reduceat(is_new.astype(np.int64), starts) if len(keys) else np.empty(0, np.int64)
    frequent = np.zeros(len(keys), bool)
    frequent[order] = np.repeat(documents >= minimum, np.diff(starts, append=len(keys)))
    return frequent


def text_key(*texts: str) -> int:
    """Return a 64-bit hash of texts, such as a URL, or a domain and a line."""
    return int.from_bytes(hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big")


def repeated_paragraphs(keys: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return which paragraphs also occur in a document with a smaller ID; that document keeps the paragraph.

    Args:
        keys: uint64 [N], hashes from `paragraph_key`.
        ids: uint64 [N, 2], document ID of each paragraph.

    Returns:
        bool [N].
    """
    repeated = np.zeros(len(keys), bool)
    repeated[duplicate_keys(keys, ids)[0]] = True
    return repeated
