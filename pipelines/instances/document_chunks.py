"""Divide documents into chunks, runs of whole sentences that become instances.

`create_instances_from_document` of google-research/bert iterates over the sentences of a document. Here the start of
the next chunk is computed for all sentences of a partition at once, as if a chunk started with each. The actual chunk
starts are then found by pointer doubling.
"""

import numpy as np


def target_lengths(count: int, max_num_tokens: int, short_seq_prob: float, rng: np.random.Generator) -> np.ndarray:
    """Return the target length in tokens of the chunks of each document.

    Args:
        count: number of documents.
        max_num_tokens: default target length, at least 2.
        short_seq_prob: probability that the target length is uniform from 2 to max_num_tokens instead.
        rng: random generator.

    Returns:
        int64 [count].
    """
    short, length = rng.random((2, count))
    return np.where(short < short_seq_prob, 2 + (length * (max_num_tokens - 1)).astype(np.int64), max_num_tokens)


def chunk_starts(document_starts: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Return the indices of the sentences that start a chunk.

    Args:
        document_starts: int64 [documents + 1], index of the first sentence of each document, and the number of
            sentences S.
        following: int64 [S], the start of the next chunk if a chunk started with this sentence; at most the start of
            the next document.

    Returns:
        int64 [chunks], ascending.
    """
    # After k rounds: the sentences reached from the start of a document in fewer than 2^k chunks. S is a fixed point.
    reached = np.zeros(len(following) + 1, bool)
    reached[document_starts] = True
    jump = np.append(following, len(following))
    starts = np.flatnonzero(reached)
    while True:
        reached[jump[starts]] = True
        more = np.flatnonzero(reached)
        if len(more) == len(starts):
            return starts[:-1]
        starts, jump = more, jump[jump]
