"""Chunks: the runs of whole sentences that a document is packed in, one after the other.

The released `create_instances_from_document` walks a document. Here that is a function from each sentence to the start
of the next chunk, computed for all sentences of a partition at once; which sentences do start a chunk is then found by
doubling the length of the step.
"""

import numpy as np


def target_lengths(count: int, max_num_tokens: int, short_seq_prob: float, rng: np.random.Generator) -> np.ndarray:
    """Return the number of tokens that the chunks of each document should have.

    Args:
        count: number of documents.
        max_num_tokens: the usual target, at least 2.
        short_seq_prob: share of documents whose target is uniform from 2 to max_num_tokens instead.
        rng: the only source of chance.

    Returns:
        int64 [count].
    """
    short, length = rng.random((2, count))
    return np.where(short < short_seq_prob, 2 + (length * (max_num_tokens - 1)).astype(np.int64), max_num_tokens)


def chunk_starts(document_starts: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Return the sentences that start a chunk.

    Args:
        document_starts: int64 [documents + 1], the first sentence of each document, and the number of sentences S.
        following: int64 [S], for every sentence: if a chunk starts with it, where the next one starts; at most where
            the next document starts.

    Returns:
        int64 [chunks], ascending.
    """
    # After k rounds: what is reached from a document's start in fewer than 2^k chunks. S leads to itself.
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
