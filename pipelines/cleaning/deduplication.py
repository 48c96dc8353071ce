"""Find near-duplicate documents (MinHash) and repeated paragraphs, as functions on arrays of hashes.

Near-duplicates are found by MinHash (Broder 1997) with locality-sensitive hashing: 5-gram shingles, 14 bands of 8 rows.
Two documents share a band with probability 0.5 at a Jaccard similarity of about 0.7. Such candidates are compared by
all 112 values before a document is dropped.

Near-duplicates form clusters, the connected components of the pairs found. Of each cluster, the document with the
smallest ID is kept, also if it is linked with others through a chain only; the ID depends on the text alone.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator

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
# Minimum number of equal bytes in the sketches of near-duplicates. One byte in 256 is equal by chance.
_MIN_EQUAL = math.ceil(PERMUTATIONS * (SIMILARITY + (1 - SIMILARITY) / 256))
# Bands of at most this many documents are compared completely. This and the next two bound the comparisons per key.
_ALL_PAIRS = 16
# Maximum clusters that are found in a larger band.
_MAX_CLUSTERS = 16
# Maximum documents of each of these clusters that the remaining documents of the band are compared with.
_MAX_LEADERS = 8
_PAIRS_AT_ONCE = 1 << 18

_GENERATOR = np.random.Generator(np.random.PCG64(20181011))
_FACTORS = _GENERATOR.integers(1, 2**63, (PERMUTATIONS, 1), np.uint64) * np.uint64(2) + np.uint64(1)
_SUMMANDS = _GENERATOR.integers(0, 2**63, (PERMUTATIONS, 1), np.uint64)
# Shingles of a document up to which all permutations are computed at once; they are in the cache then.
_FEW_SHINGLES = 512
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
    step = PERMUTATIONS if len(shingles) <= _FEW_SHINGLES else BAND_ROWS
    minima = [
        (shingles * _FACTORS[row : row + step] + _SUMMANDS[row : row + step]).min(axis=-1)  # [step, shingles] -> [step]
        for row in range(0, PERMUTATIONS, step)
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


def near_duplicates(keys: np.ndarray, ids: np.ndarray, sketches: np.ndarray) -> np.ndarray:
    """Return links from near-duplicates to the smallest ID of their cluster, as `join_links` does.

    The time is linear in the number of keys, apart from sorting.

    Args:
        keys: uint64 [N], band keys from `band_keys`, up to BANDS per document.
        ids: uint64 [N, 2], document ID of each key.
        sketches: uint8 [N, PERMUTATIONS], sketch of the document of each key, from `sketch`.

    Returns:
        uint64 [M, 4]: IDs of a document and of the smallest ID that its band keys here link it with.
    """
    order = np.lexsort((ids[:, 1], ids[:, 0], keys))
    equal = (keys[order[1:]] == keys[order[:-1]]) & (ids[order[1:]] == ids[order[:-1]]).all(axis=-1)
    order = order[np.append(np.ones(min(1, len(order)), bool), ~equal)]
    starts = _run_starts(keys[order])
    sizes = np.diff(starts, append=len(order))
    pairs = [np.empty((0, 2), np.int64)]
    for size in range(2, _ALL_PAIRS + 1):
        first, second = np.triu_indices(size, 1)
        bands = starts[sizes == size]
        step = _PAIRS_AT_ONCE // len(first)
        for begin in range(0, len(bands), step):
            start = bands[begin : begin + step, np.newaxis]
            candidates = np.stack([order[start + first].ravel(), order[start + second].ravel()], axis=-1)
            pairs.append(candidates[_are_similar(sketches[candidates[:, 0]], sketches[candidates[:, 1]])])
    for start, size in zip(starts[sizes > _ALL_PAIRS], sizes[sizes > _ALL_PAIRS], strict=True):
        members = order[start : start + size]
        pairs.extend(members[linked] for linked in _links_of_band(sketches[members]))
    return join_links([ids[np.concatenate(pairs)].reshape(-1, 4)])


def _are_similar(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return whether sketches [N, PERMUTATIONS] agree with others, or with one: bool [N]."""
    return (first == second).sum(axis=-1, dtype=np.uint8) >= _MIN_EQUAL


def _links_of_band(sketches: np.ndarray) -> Iterator[np.ndarray]:
    """Yield links between documents of a large band as int64 [M, 2], rows of `sketches`.

    The remaining document with the smallest ID starts a cluster. Its near-duplicates join, and those of the first
    `_MAX_LEADERS` documents of the cluster.
    """
    remaining = np.arange(len(sketches))
    for _ in range(_MAX_CLUSTERS):
        cluster, remaining = list(remaining[:1]), remaining[1:]
        for number in range(_MAX_LEADERS):
            if number >= len(cluster) or not len(remaining):
                break
            is_similar = _are_similar(sketches[remaining], sketches[cluster[number]])
            joined, remaining = remaining[is_similar], remaining[~is_similar]
            cluster.extend(joined)
            yield np.stack([joined, np.full_like(joined, cluster[number])], axis=-1)


def join_links(batches: Iterable[np.ndarray]) -> np.ndarray:
    """Return the clusters that links form: connected components by hooking and pointer jumping.

    Args:
        batches: uint64 [N, 4] each, IDs of two linked documents, in any order. Memory is about 300 bytes per document
            with a link, for any number of links.

    Returns:
        uint64 [M, 4], sorted: ID of each linked document other than the smallest of its cluster, and that smallest ID.
    """
    joined = np.empty((0, 4), np.uint64)
    pending: list[np.ndarray] = []
    for batch in batches:
        pending.append(batch)
        # Joined when they double, so that the total time is linear.
        if sum(map(len, pending)) >= max(len(joined), _PAIRS_AT_ONCE):
            joined, pending = _join(np.concatenate([joined, *pending])), []
    return _join(np.concatenate([joined, *pending])) if pending else joined


def _join(links: np.ndarray) -> np.ndarray:
    """Return `join_links` of one batch."""
    ids = links.reshape(-1, 2)
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    ids = ids[order]
    is_first = np.ones(len(ids), bool)
    is_first[1:] = (ids[1:] != ids[:-1]).any(axis=-1)
    numbers = np.empty(len(ids), np.int64)  # of documents, in order of their IDs
    numbers[order] = np.cumsum(is_first) - 1
    documents = ids[is_first]
    smallest = np.arange(len(documents))
    ends = numbers.reshape(-1, 2)
    while len(ends):
        # Both ends are now the smallest of their trees. The larger one becomes a child; two rounds halve the trees.
        ends = smallest[ends]
        ends = ends[ends[:, 0] != ends[:, 1]]
        np.minimum.at(smallest, ends.max(axis=-1), ends.min(axis=-1))
        while (smallest[smallest] != smallest).any():
            smallest = smallest[smallest]
    children = np.flatnonzero(smallest != np.arange(len(documents)))
    return np.concatenate([documents[children], documents[smallest[children]]], axis=-1)


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
