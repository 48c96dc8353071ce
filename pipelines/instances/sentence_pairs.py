"""Sample pairs of segments for all documents of a partition at once: next sentence and sentence order prediction.

Follows `create_instances_from_document` and `truncate_seq_pair` of google-research/bert's create_pretraining_data.py,
and for sentence order Lan et al. 2019 (ALBERT), section 3.1. A pair is held as two runs of the flat token array, not
as tokens.
"""

import numpy as np

from pipelines.instances.document_chunks import chunk_starts, target_lengths
from pipelines.instances.instances import Instances, TokenizedDocuments
from tokenizer.pair_truncation import truncated_lengths

# Halvings of the interval around the probability that balances labels, to 1/1024.
_HALVINGS = 10


def next_sentence_pairs(
    documents: TokenizedDocuments,
    max_seq_length: int,
    short_seq_prob: float,
    rng: np.random.Generator,
    *,
    balance: bool = False,
) -> Instances:
    """Pack every document's sentences into pairs; label 1 where B is drawn from another document.

    A document's target length is max_seq_length - 3, or with probability short_seq_prob uniform from 2 to that.
    Sentences are gathered up to the target; a random number of them are A. With probability 1/2, and always when there
    is only one, B starts at a random sentence of a random other document. The sentences that were not A are then put
    back; otherwise they are B. Pairs are cut to fit, each token from a random end.

    Chunks of one sentence make more than half of the labels 1. `balance` replaces the probability 1/2, for the chunks
    that leave a choice, by one value for the partition such that half of its labels are 1. Where more than half of the
    chunks have one sentence only, it cannot: then all others are true pairs, and label 1 stays the more frequent one.

    Args:
        documents: the partition; every other document of it is a candidate for a random B. A single document gives
            true pairs only.
        max_seq_length: including [CLS] and two [SEP]; at least 5.
        short_seq_prob: 0 to 1.
        rng: the only source of chance.
        balance: see above.
    """
    max_num_tokens = max_seq_length - 3
    starts, first_sentence = documents.sentence_starts, documents.document_starts
    document = documents.document_of_sentence()  # [S], as all until the chunks are known
    sentence = np.arange(len(document))
    target = target_lengths(len(documents), max_num_tokens, short_seq_prob, rng)[document]
    chunk_end = _end_of_run(starts, sentence, target, first_sentence[document + 1])
    # Drawn for every sentence, used of those that start a chunk.
    draw_end, draw_next = rng.random((2, len(sentence)))
    a_end = sentence + 1 + (draw_end * (chunk_end - sentence - 1)).astype(np.int64)

    if len(documents) > 1:
        chunks, random_next = _draw_chunks(first_sentence, a_end, chunk_end, draw_next, balance)
        draw_document, draw_sentence = rng.random((2, len(chunks)))
        other = (draw_document * (len(documents) - 1)).astype(np.int64)
        other += other >= document[chunks]
        other_start, other_end = first_sentence[other], first_sentence[other + 1]
        random_start = other_start + (draw_sentence * (other_end - other_start)).astype(np.int64)
        wanted = np.maximum(target[chunks] - (starts[a_end[chunks]] - starts[chunks]), 1)
        random_end = _end_of_run(starts, random_start, wanted, other_end)
        b_start = np.where(random_next, random_start, a_end[chunks])
        b_end = np.where(random_next, random_end, chunk_end[chunks])
        dropped = 0
    else:
        every = chunk_starts(first_sentence, chunk_end)
        chunks = every[a_end[every] < chunk_end[every]]
        b_start, b_end = a_end[chunks], chunk_end[chunks]
        random_next = np.zeros(len(chunks), bool)
        dropped = len(every) - len(chunks)

    # What is cut from a random B is lost nowhere: that text has its own turn.
    return _truncate_pairs(
        a_start=starts[chunks],
        a_end=starts[a_end[chunks]],
        b_start=starts[b_start],
        b_end=starts[b_end],
        labeled=random_next,
        b_has_other_turn=random_next,
        tokens_packed=int(starts[-1]),
        segments_dropped=dropped,
        max_num_tokens=max_num_tokens,
        rng=rng,
    )


def sentence_order_pairs(
    documents: TokenizedDocuments, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> Instances:
    """Pack every document's sentences into pairs of neighboring segments; label 1 where they are swapped.

    Sentences are gathered as for `next_sentence_pairs`; a random number of them, but not all, are one segment and the
    others are the next. A chunk of one sentence is split after a random token; one of a single token is dropped. With
    probability 1/2 the later segment is A. Pairs are cut to fit, each token from a random end.

    Args:
        documents: the partition.
        max_seq_length: including [CLS] and two [SEP]; at least 5.
        short_seq_prob: 0 to 1.
        rng: the only source of chance.
    """
    max_num_tokens = max_seq_length - 3
    starts, first_sentence = documents.sentence_starts, documents.document_starts
    document = documents.document_of_sentence()
    target = target_lengths(len(documents), max_num_tokens, short_seq_prob, rng)[document]
    chunk_end = _end_of_run(starts, np.arange(len(document)), target, first_sentence[document + 1])
    chunks = chunk_starts(first_sentence, chunk_end)
    chunk_end = chunk_end[chunks]

    # A chunk is split between its sentences, or between the tokens of its only one.
    start, end = starts[chunks], starts[chunk_end]  # [n], tokens
    draw_split, draw_swap = rng.random((2, len(chunks)))
    alone = chunk_end - chunks == 1
    splits = np.where(alone, end - start, chunk_end - chunks) - 1
    first_part = 1 + (draw_split * splits).astype(np.int64)
    middle = np.where(alone, start + first_part, starts[np.where(alone, chunks, chunks + first_part)])
    swapped = draw_swap < 0.5
    enough = end - start >= 2
    start, middle, end, swapped = start[enough], middle[enough], end[enough], swapped[enough]
    return _truncate_pairs(
        a_start=np.where(swapped, middle, start),
        a_end=np.where(swapped, end, middle),
        b_start=np.where(swapped, start, middle),
        b_end=np.where(swapped, middle, end),
        labeled=swapped,
        b_has_other_turn=np.zeros(len(start), bool),
        tokens_packed=int(starts[-1]),
        segments_dropped=int(np.count_nonzero(~enough)),
        max_num_tokens=max_num_tokens,
        rng=rng,
    )


def _draw_chunks(
    first_sentence: np.ndarray, a_end: np.ndarray, chunk_end: np.ndarray, draw: np.ndarray, balance: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sentences that start a chunk, and whether its B is random.

    Args:
        first_sentence: int64 [documents + 1].
        a_end, chunk_end: int64 [S], of the chunk that starts with each sentence.
        draw: float64 [S], uniform; B is random where it is less than a probability, or where A is the whole chunk.
        balance: choose the probability, by bisection, such that B is random in half of the chunks.
    """
    low, high = 0.0, 1.0
    nearest = len(draw) + 1
    for _ in range(_HALVINGS if balance else 1):
        probability = (low + high) / 2
        is_random = (a_end == chunk_end) | (draw < probability)
        starts = chunk_starts(first_sentence, np.where(is_random, a_end, chunk_end))
        too_many = 2 * int(np.count_nonzero(is_random[starts])) - len(starts)
        if abs(too_many) < nearest:
            nearest, chunks, random_next = abs(too_many), starts, is_random[starts]
        if too_many == 0:
            break
        low, high = (low, probability) if too_many > 0 else (probability, high)
    return chunks, random_next


def _end_of_run(starts: np.ndarray, first: np.ndarray, length: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return the first sentence after `first` by which `length` (>= 1) tokens have been gathered, at most `limit`."""
    return np.minimum(np.searchsorted(starts, starts[first] + length, side="left"), limit)


def _truncate_pairs(
    *,
    a_start: np.ndarray,
    a_end: np.ndarray,
    b_start: np.ndarray,
    b_end: np.ndarray,
    labeled: np.ndarray,
    b_has_other_turn: np.ndarray,
    tokens_packed: int,
    segments_dropped: int,
    max_num_tokens: int,
    rng: np.random.Generator,
) -> Instances:
    """Cut each pair's tokens from random ends of its segments, and count those that no other pair has."""
    a_length, b_length = a_end - a_start, b_end - b_start
    kept_a, kept_b = truncated_lengths(a_length, b_length, max_num_tokens)
    cut_a, cut_b = a_length - kept_a, b_length - kept_b
    return Instances(
        a_start=a_start + rng.binomial(cut_a, 0.5),
        a_length=kept_a,
        b_start=b_start + rng.binomial(cut_b, 0.5),
        b_length=kept_b,
        labels=labeled.astype(np.uint8),
        tokens_truncated=int(cut_a.sum() + cut_b[~b_has_other_turn].sum()),
        tokens_packed=tokens_packed,
        segments_dropped=segments_dropped,
    )
