"""Sample the instances of a partition for an objective.

Implements `create_instances_from_document` and `truncate_seq_pair` of google-research/bert, create_pretraining_data.py;
for sentence order Lan et al. 2019 (ALBERT), section 3.1; without pairs DOC-SENTENCES of Liu et al. 2019 (RoBERTa),
section 4.2.

All documents of a partition are processed at once, and a segment is a range of the flat token array. Documents are
divided into chunks, runs of whole sentences. The released code iterates over the sentences of a document; here the
start of the next chunk is computed for all sentences at once, as if a chunk started with each. The actual chunk starts
are then found by pointer doubling.
"""

import dataclasses

import numpy as np

from beambert.pipelines.instances.instances import Instances, TokenizedDocuments, ranges
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.tokenizer import truncated_lengths


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


# Bisection steps for the probability that balances the labels, to a precision of 1/1024.
_BISECTION_STEPS = 10


def next_sentence_pairs(
    documents: TokenizedDocuments,
    max_seq_length: int,
    short_seq_prob: float,
    rng: np.random.Generator,
    *,
    balance: bool = False,
) -> Instances:
    """Sample pairs for next sentence prediction; label 1 marks a B from another document.

    The target length of a document is max_seq_length - 3 or, with probability short_seq_prob, uniform from 2 to that.
    Sentences are collected into a chunk up to the target length; a random number of them become A. With probability
    1/2, or if the chunk has a single sentence, B starts at a random sentence of a random other document, and the unused
    sentences start the next chunk. Otherwise the other sentences of the chunk are B. Pairs are truncated token by
    token, each from a random end.

    Chunks of a single sentence raise the share of label 1 above 1/2. `balance` replaces the probability 1/2 for the
    other chunks by a value for which half of the labels of the partition are 1. If more than half of the chunks have a
    single sentence, this is impossible: then all other chunks become true pairs, and label 1 remains more frequent.

    Args:
        documents: documents of the partition; all other documents are candidates for a random B. A single document
            gives true pairs only.
        max_seq_length: maximum length, including [CLS] and two [SEP]; at least 5.
        short_seq_prob: probability of a shorter target length, from 0 to 1.
        rng: random generator.
        balance: whether to balance the labels.
    """
    max_num_tokens = max_seq_length - 3
    starts, first_sentence = documents.sentence_starts, documents.document_starts
    document = documents.document_of_sentence()  # [S]; all arrays are per sentence until the chunks are known
    sentence = np.arange(len(document))
    target = target_lengths(len(documents), max_num_tokens, short_seq_prob, rng)[document]
    chunk_end = _end_of_run(starts, sentence, target, first_sentence[document + 1])
    # Drawn for every sentence, used only for those that start a chunk.
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

    # Tokens truncated from a random B are not counted: that text is also sampled on its own.
    return _truncate_pairs(
        a_start=starts[chunks],
        a_end=starts[a_end[chunks]],
        b_start=starts[b_start],
        b_end=starts[b_end],
        labeled=random_next,
        b_is_sampled_elsewhere=random_next,
        tokens_packed=int(starts[-1]),
        segments_dropped=dropped,
        max_num_tokens=max_num_tokens,
        rng=rng,
    )


def sentence_order_pairs(
    documents: TokenizedDocuments, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> Instances:
    """Sample pairs for sentence order prediction; label 1 marks swapped segments.

    Sentences are collected into chunks as in `next_sentence_pairs`. A chunk is split into two consecutive segments
    after a random sentence, or after a random token if it has a single sentence. A chunk of a single token is dropped.
    The segments are swapped with probability 1/2. Pairs are truncated token by token, each from a random end.

    Args:
        documents: documents of the partition.
        max_seq_length: maximum length, including [CLS] and two [SEP]; at least 5.
        short_seq_prob: probability of a shorter target length, from 0 to 1.
        rng: random generator.
    """
    max_num_tokens = max_seq_length - 3
    starts, first_sentence = documents.sentence_starts, documents.document_starts
    document = documents.document_of_sentence()
    target = target_lengths(len(documents), max_num_tokens, short_seq_prob, rng)[document]
    chunk_end = _end_of_run(starts, np.arange(len(document)), target, first_sentence[document + 1])
    chunks = chunk_starts(first_sentence, chunk_end)
    chunk_end = chunk_end[chunks]

    # Split between sentences, or between tokens if there is a single sentence.
    start, end = starts[chunks], starts[chunk_end]  # [n], tokens
    draw_split, draw_swap = rng.random((2, len(chunks)))
    alone = chunk_end - chunks == 1
    splits = np.where(alone, end - start, chunk_end - chunks) - 1
    first_part = 1 + (draw_split * splits).astype(np.int64)
    middle = np.where(alone, start + first_part, starts[np.where(alone, chunks, chunks + first_part)])
    swapped = draw_swap < 0.5
    can_split = end - start >= 2
    start, middle, end, swapped = start[can_split], middle[can_split], end[can_split], swapped[can_split]
    return _truncate_pairs(
        a_start=np.where(swapped, middle, start),
        a_end=np.where(swapped, end, middle),
        b_start=np.where(swapped, start, middle),
        b_end=np.where(swapped, middle, end),
        labeled=swapped,
        b_is_sampled_elsewhere=np.zeros(len(start), bool),
        tokens_packed=int(starts[-1]),
        segments_dropped=int(np.count_nonzero(~can_split)),
        max_num_tokens=max_num_tokens,
        rng=rng,
    )


def _draw_chunks(
    first_sentence: np.ndarray, a_end: np.ndarray, chunk_end: np.ndarray, draw: np.ndarray, balance: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of sentences that start a chunk, and whether B of the chunk is random.

    Args:
        first_sentence: int64 [documents + 1].
        a_end: int64 [S], end of A of the chunk that starts with each sentence.
        chunk_end: int64 [S], end of the chunk that starts with each sentence.
        draw: float64 [S], uniform random numbers; B is random below a probability, or if A is the whole chunk.
        balance: whether to choose the probability by bisection such that B is random in half of the chunks.
    """
    low, high = 0.0, 1.0
    nearest = len(draw) + 1
    for _ in range(_BISECTION_STEPS if balance else 1):
        probability = (low + high) / 2
        is_random = (a_end == chunk_end) | (draw < probability)
        starts = chunk_starts(first_sentence, np.where(is_random, a_end, chunk_end))
        excess = 2 * int(np.count_nonzero(is_random[starts])) - len(starts)
        if abs(excess) < nearest:
            nearest, chunks, random_next = abs(excess), starts, is_random[starts]
        if excess == 0:
            break
        low, high = (low, probability) if excess > 0 else (probability, high)
    return chunks, random_next


def _end_of_run(starts: np.ndarray, first: np.ndarray, length: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return the first index after `first` up to which the sentences have `length` (>= 1) tokens, at most `limit`."""
    return np.minimum(np.searchsorted(starts, starts[first] + length, side="left"), limit)


def _truncate_pairs(
    *,
    a_start: np.ndarray,
    a_end: np.ndarray,
    b_start: np.ndarray,
    b_end: np.ndarray,
    labeled: np.ndarray,
    b_is_sampled_elsewhere: np.ndarray,
    tokens_packed: int,
    segments_dropped: int,
    max_num_tokens: int,
    rng: np.random.Generator,
) -> Instances:
    """Truncate pairs, each token from a random end of its segment, and count the tokens that no other pair contains."""
    a_length, b_length = a_end - a_start, b_end - b_start
    kept_a, kept_b = truncated_lengths(a_length, b_length, max_num_tokens)
    cut_a, cut_b = a_length - kept_a, b_length - kept_b
    return Instances(
        a_start=a_start + rng.binomial(cut_a, 0.5),
        a_length=kept_a,
        b_start=b_start + rng.binomial(cut_b, 0.5),
        b_length=kept_b,
        labels=labeled.astype(np.uint8),
        tokens_truncated=int(cut_a.sum() + cut_b[~b_is_sampled_elsewhere].sum()),
        tokens_packed=tokens_packed,
        segments_dropped=segments_dropped,
    )


def full_sentences(
    documents: TokenizedDocuments, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> Instances:
    """Fill instances with as many consecutive sentences of a document as fit; no token is dropped.

    The target length of a document is max_seq_length - 2 or, with probability short_seq_prob, uniform from 2 to that.
    A sentence that does not fit starts the next instance. A sentence longer than the target becomes an instance of its
    own. A sentence longer than max_seq_length - 2 is first split into parts of that length and a remainder.

    Only the target length is random. Copies of the data therefore differ mainly in their masks.

    Args:
        documents: documents of the partition.
        max_seq_length: maximum length, including [CLS] and [SEP]; at least 4.
        short_seq_prob: probability of a shorter target length, from 0 to 1.
        rng: random generator.

    Returns:
        The instances, with segment A only; all labels are 0.
    """
    max_num_tokens = max_seq_length - 2
    target = target_lengths(len(documents), max_num_tokens, short_seq_prob, rng)
    cut = _cut_sentences(documents, max_num_tokens)
    starts, document = cut.sentence_starts, cut.document_of_sentence()
    fitting = np.searchsorted(starts, starts[:-1] + target[document], side="right") - 1
    after = np.arange(1, len(starts))
    chunk_end = np.clip(fitting, after, cut.document_starts[document + 1])
    chunks = chunk_starts(cut.document_starts, chunk_end)
    zeros = np.zeros(len(chunks), np.int64)
    return Instances(
        a_start=starts[chunks],
        a_length=starts[chunk_end[chunks]] - starts[chunks],
        b_start=zeros,
        b_length=zeros,
        labels=zeros.astype(np.uint8),
        tokens_truncated=0,
        tokens_packed=int(starts[-1]),
        segments_dropped=0,
    )


def _cut_sentences(documents: TokenizedDocuments, longest: int) -> TokenizedDocuments:
    """Return the documents with sentences longer than `longest` split into parts of that length and a remainder."""
    starts = documents.sentence_starts
    parts = -(-np.diff(starts) // longest)  # per sentence, rounded up
    number = ranges(np.zeros_like(parts), parts)
    return dataclasses.replace(
        documents,
        sentence_starts=np.append(np.repeat(starts[:-1], parts) + number * longest, starts[-1]),
        document_starts=np.concatenate([[0], np.cumsum(parts)])[documents.document_starts],
    )


def sample_instances(
    documents: TokenizedDocuments, options: PretrainingDataOptions, rng: np.random.Generator
) -> Instances:
    """Sample instances for `options.objective`, from each document as often as its weight requires.

    A document of weight 2.3 is sampled twice, and a third time with probability 0.3. A document of weight 0.3 is
    sampled with probability 0.3. Candidates for a random B are the other documents of the same round, never the same
    document.

    Args:
        documents: documents of the partition.
        options: objective, max_seq_length, short_seq_prob and balance_next_sentence are used.
        rng: random generator.

    Returns:
        The instances, in arbitrary order.
    """
    if (documents.weights == 1).all():
        return _sample_once(documents, options, rng)
    copies = np.floor(documents.weights) + (rng.random(len(documents)) < documents.weights % 1)
    rounds = [_sample_chosen(documents, copies > number, options, rng) for number in range(int(copies.max(initial=1)))]
    return Instances(
        a_start=np.concatenate([instances.a_start for instances in rounds]),
        a_length=np.concatenate([instances.a_length for instances in rounds]),
        b_start=np.concatenate([instances.b_start for instances in rounds]),
        b_length=np.concatenate([instances.b_length for instances in rounds]),
        labels=np.concatenate([instances.labels for instances in rounds]),
        tokens_truncated=sum(instances.tokens_truncated for instances in rounds),
        tokens_packed=sum(instances.tokens_packed for instances in rounds),
        segments_dropped=sum(instances.segments_dropped for instances in rounds),
    )


def _sample_once(documents: TokenizedDocuments, options: PretrainingDataOptions, rng: np.random.Generator) -> Instances:
    """Sample instances from every document once."""
    length, short = options.max_seq_length, options.short_seq_prob
    if options.objective == "sop":
        return sentence_order_pairs(documents, length, short, rng)
    if options.objective == "mlm":
        return full_sentences(documents, length, short, rng)
    return next_sentence_pairs(documents, length, short, rng, balance=options.balance_next_sentence)


def _sample_chosen(
    documents: TokenizedDocuments, chosen: np.ndarray, options: PretrainingDataOptions, rng: np.random.Generator
) -> Instances:
    """Sample instances from the chosen documents (bool [documents]) once, as ranges of all token ids."""
    sentences = np.diff(documents.document_starts)
    lengths = np.diff(documents.sentence_starts)[np.repeat(chosen, sentences)]
    subset = TokenizedDocuments(
        documents.token_ids,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([[0], np.cumsum(sentences[chosen])]).astype(np.int64),
        documents.weights[chosen],
    )
    instances = _sample_once(subset, options, rng)
    # Map indices in the tokens of the chosen documents to indices in all tokens.
    subset_starts = subset.sentence_starts[subset.document_starts[:-1]]
    original = documents.sentence_starts[documents.document_starts[:-1]][chosen]
    moved = {
        name: start + (original - subset_starts)[np.searchsorted(subset_starts, start, side="right") - 1]
        for name in ("a_start", "b_start")
        if len(start := getattr(instances, name))
    }
    return dataclasses.replace(instances, **moved)
