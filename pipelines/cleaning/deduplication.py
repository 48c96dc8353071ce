"""Near-duplicate documents (MinHash) and repeated paragraphs: plain functions over arrays of hashes.

Near-duplicates are found by MinHash (Broder 1997) and locality-sensitive hashing: runs of five words, 14 bands of 8
values, so that two documents meet with a probability of one half where they share about 0.7 of their runs. What meets
is compared by all 112 values before a document is dropped.

Of near-duplicates the one with the least identity stays, which depends on the texts alone. A document is dropped for a
similar one with a lesser identity even if that one is dropped for a third: of a chain of similar documents the ends may
differ, but the least of every cluster always stays.
"""

import numpy as np

from pipelines.cleaning.ngrams import ngram_keys, plain_word_hashes
from tokenizer.normalization import prepare_chunks

SHINGLE_WORDS = 5
BANDS = 14
BAND_ROWS = 8
PERMUTATIONS = BANDS * BAND_ROWS
# Share of equal values from which on documents are near-duplicates.
SIMILARITY = 0.7
# Shorter paragraphs ("See the table below.") may stand in any number of documents.
MIN_PARAGRAPH_WORDS = 8
# Of documents with one band in common each is compared with the first of them, and with this many that were unlike it.
_LEADERS = 16

_GENERATOR = np.random.Generator(np.random.PCG64(20181011))
# [bands, rows, 1]
_FACTORS = _GENERATOR.integers(1, 2**63, (BANDS, BAND_ROWS, 1), np.uint64) * np.uint64(2) + np.uint64(1)
_SUMMANDS = _GENERATOR.integers(0, 2**63, (BANDS, BAND_ROWS, 1), np.uint64)
_BAND_WEIGHTS = _GENERATOR.integers(1, 2**63, (BANDS, BAND_ROWS), np.uint64) * np.uint64(2) + np.uint64(1)


def _word_hashes(text: str) -> np.ndarray:
    """Return word hashes of a text in lower case, without punctuation, an ideograph being a word: uint64 [W]."""
    return plain_word_hashes(prepare_chunks([text])[0])


def signature(text: str) -> np.ndarray | None:
    """Return the MinHash signature of a text.

    Returns:
        uint32 [PERMUTATIONS]; two texts agree in a share of them that estimates the Jaccard similarity of their runs of
        five words. None for a text of fewer than five words.
    """
    shingles = ngram_keys(_word_hashes(text), SHINGLE_WORDS)
    if not len(shingles):
        return None
    least = [
        (shingles * factors + summands).min(axis=-1)  # [rows, shingles] -> [rows]
        for factors, summands in zip(_FACTORS, _SUMMANDS, strict=True)
    ]
    return (np.concatenate(least) >> np.uint64(32)).astype(np.uint32)


def band_keys(signatures: np.ndarray) -> np.ndarray:
    """Return a key for each band of each signature; documents with a key in common may be near-duplicates.

    Args:
        signatures: uint32 [D, PERMUTATIONS].

    Returns:
        uint64 [D, BANDS].
    """
    bands = signatures.reshape(-1, BANDS, BAND_ROWS).astype(np.uint64)  # [D, bands, rows]
    return ((bands + np.uint64(1)) * _BAND_WEIGHTS).sum(axis=-1, dtype=np.uint64) ^ np.arange(BANDS, dtype=np.uint64)


def sketch(signatures: np.ndarray) -> np.ndarray:
    """Return the lowest byte of each value (Li and Koenig 2010): uint8, of the shape of signatures."""
    return (signatures & np.uint32(0xFF)).astype(np.uint8)


def near_duplicates(keys: np.ndarray, ids: np.ndarray, sketches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which documents are dropped for which others, judged by the bands they share.

    Args:
        keys: uint64 [N], of one document up to BANDS keys.
        ids: uint64 [N, 2], the identity of the document that each key is of.
        sketches: uint8 [N, PERMUTATIONS], as `sketch` makes them.

    Returns:
        (dropped, kept): int64 [M] each, places in the arguments; the identity of a kept one is less than that of the
        dropped one. A document may be dropped several times.
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
            # One in 256 bytes agrees by chance.
            alike = (agreeing - 1 / 256) / (1 - 1 / 256) >= SIMILARITY
            dropped.append(members[alike])
            kept.append(np.full(int(alike.sum()), leader, np.int64))
            members = members[~alike]
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *dropped]), np.concatenate([empty, *kept])


def _run_starts(ordered: np.ndarray) -> np.ndarray:
    """Return where runs of equal neighbors begin."""
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(first)


def paragraph_key(paragraph: str) -> int | None:
    """Return a 64-bit key of a paragraph's words, ignoring case and punctuation; None if it is too short."""
    hashes = _word_hashes(paragraph)
    if len(hashes) < MIN_PARAGRAPH_WORDS:
        return None
    return int(ngram_keys(hashes, len(hashes))[0])


def repeated_paragraphs(keys: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the paragraphs that another document of lesser identity contains too; that document keeps them.

    Args:
        keys: uint64 [N], as `paragraph_key` makes them.
        ids: uint64 [N, 2], the identity of the document that each is of.

    Returns:
        bool [N].
    """
    repeated = np.zeros(len(keys), bool)
    order = np.lexsort((ids[:, 1], ids[:, 0], keys))
    sorted_keys, sorted_ids = keys[order], ids[order]
    starts = _run_starts(sorted_keys)
    owner = np.repeat(starts, np.diff(starts, append=len(keys)))
    repeated[order] = (sorted_ids != sorted_ids[owner]).any(axis=-1)
    return repeated
