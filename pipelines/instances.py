"""Sentence pairs for next sentence prediction, sampled for all documents of a bucket at once.

Follows `create_instances_from_document` and `truncate_seq_pair` of google-research/bert's
create_pretraining_data.py. Where that walks one document at a time with Python lists, this moves every document one
instance forward in one numpy step. A pair is held as two runs of the flat token array, not as tokens.
"""

import dataclasses

import numpy as np

from pipelines.pretraining_options import PretrainingDataOptions


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Documents as flat arrays; no document and no sentence is empty.

    Attributes:
        token_ids: int32 [tokens].
        sentence_starts: int64 [sentences + 1], where each sentence starts in token_ids; the last is their number.
        document_starts: int64 [documents + 1], where each document starts among the sentences.
        weights: float64 [documents], how often each is to be seen, on average over duplicates.
    """

    token_ids: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1


@dataclasses.dataclass(frozen=True)
class Instances:
    """Instances as runs of `TokenizedDocuments.token_ids`; every array int64 [instances] but labels.

    Attributes:
        a_start, a_length: segment A.
        b_start, b_length: segment B; length 0 where there is none.
        labels: uint8 [instances]; 1 where B is not what follows A: drawn from another document, or swapped with A.
        tokens_truncated: tokens cut from all pairs to fit max_seq_length.
        segments_dropped: single segments that nothing could be paired with.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    labels: np.ndarray
    tokens_truncated: int
    segments_dropped: int

    def __len__(self) -> int:
        return len(self.a_start)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [instances]: tokens with [CLS] and one or two [SEP]."""
        return self.a_length + self.b_length + 2 + (self.b_length > 0)


def from_sentences(
    token_ids: np.ndarray, token_starts: np.ndarray, sentences: np.ndarray, weights: np.ndarray | None = None
) -> TokenizedDocuments:
    """Builds the arrays, leaving out sentences without tokens and documents without sentences.

    Args:
        token_ids: int32 [tokens].
        token_starts: int64 [sentences + 1], offsets of the sentences in token_ids.
        sentences: int64 [documents], number of sentences of each document, the empty ones counted.
        weights: float64 [documents], or None for 1.
    """
    weights = np.ones(len(sentences)) if weights is None else weights
    filled = np.diff(token_starts) > 0
    document_of_sentence = np.repeat(np.arange(len(sentences)), sentences)
    remaining = np.bincount(document_of_sentence[filled], minlength=len(sentences))
    return TokenizedDocuments(
        token_ids=token_ids,
        sentence_starts=np.concatenate([token_starts[:-1][filled], token_starts[-1:]]),
        document_starts=np.concatenate([[0], np.cumsum(remaining[remaining > 0])]).astype(np.int64),
        weights=weights[remaining > 0],
    )


def _end_of_run(starts: np.ndarray, first: np.ndarray, length: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """The first sentence after `first` by which at least `length` (>= 1) tokens have been gathered, at most `limit`."""
    return np.minimum(np.searchsorted(starts, starts[first] + length, side="left"), limit)


def truncation(a_length: np.ndarray, b_length: np.ndarray, max_num_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens each segment of a pair loses: one at a time from the longer, from B when equal.

    Args:
        a_length, b_length: int64 [n].
        max_num_tokens: what both may have together.

    Returns:
        int64 [n] for A and for B.
    """
    excess = np.maximum(a_length + b_length - max_num_tokens, 0)
    until_equal = np.minimum(excess, np.abs(a_length - b_length))
    alternating = excess - until_equal
    cut_a = np.where(a_length > b_length, until_equal, 0) + alternating // 2
    cut_b = np.where(a_length > b_length, 0, until_equal) + (alternating + 1) // 2
    return cut_a, cut_b


def sample_pairs(
    documents: TokenizedDocuments, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> Instances:
    """Packs every document's sentences into pairs.

    A document's target length is max_seq_length - 3, or with probability short_seq_prob uniform from 2 to that.
    Sentences are gathered up to the target; a random number of them are A. With probability 1/2, and always when
    there is only one, B is gathered from a random sentence on of a random other document, and the sentences that
    were not A are put back; otherwise they are B. Pairs are cut to fit, each token from a random end.

    Args:
        documents: the bucket; every other document of it is a candidate for a random B.
        max_seq_length: including [CLS] and two [SEP]; at least 5.
        short_seq_prob: 0 to 1.
        rng: the only source of chance.

    Returns:
        The pairs, in no meaningful order.
    """
    max_num_tokens = max_seq_length - 3
    starts, first_sentence = documents.sentence_starts, documents.document_starts
    count = len(documents)
    short = rng.random(count) < short_seq_prob
    target = np.where(short, 2 + (rng.random(count) * (max_num_tokens - 1)).astype(np.int64), max_num_tokens)

    position = first_sentence[:-1].copy()
    active = np.arange(count)
    steps: list[tuple[np.ndarray, ...]] = []
    segments_dropped = 0
    while active.size:
        start, document_end, length = position[active], first_sentence[active + 1], target[active]
        chunk_end = _end_of_run(starts, start, length, document_end)
        in_chunk = chunk_end - start
        draw = rng.random((4, active.size))
        a_end = start + np.where(in_chunk > 1, 1 + (draw[0] * (in_chunk - 1)).astype(np.int64), 1)
        random_next = (in_chunk == 1) | (draw[1] < 0.5)
        a_length = starts[a_end] - starts[start]
        if count > 1:
            other = (draw[2] * (count - 1)).astype(np.int64)
            other += other >= active
            other_end = first_sentence[other + 1]
            random_start = first_sentence[other] + (draw[3] * (other_end - first_sentence[other])).astype(np.int64)
            random_end = _end_of_run(starts, random_start, np.maximum(length - a_length, 1), other_end)
            b_start = np.where(random_next, random_start, a_end)
            b_end = np.where(random_next, random_end, chunk_end)
            position[active] = np.where(random_next, a_end, chunk_end)
            steps.append((starts[start], a_length, starts[b_start], starts[b_end] - starts[b_start], random_next))
        else:
            if in_chunk[0] > 1:
                b_length = starts[chunk_end] - starts[a_end]
                steps.append((starts[start], a_length, starts[a_end], b_length, np.zeros(1, bool)))
            else:
                segments_dropped += 1
            position[active] = chunk_end
        active = active[position[active] < first_sentence[active + 1]]

    if not steps:
        empty = np.zeros(0, np.int64)
        return Instances(empty, empty, empty, empty, np.zeros(0, np.uint8), 0, segments_dropped)
    a_start, a_length, b_start, b_length, is_random_next = (
        np.concatenate(column) for column in zip(*steps, strict=True)
    )
    cut_a, cut_b = truncation(a_length, b_length, max_num_tokens)
    return Instances(
        a_start=a_start + rng.binomial(cut_a, 0.5),
        a_length=a_length - cut_a,
        b_start=b_start + rng.binomial(cut_b, 0.5),
        b_length=b_length - cut_b,
        labels=is_random_next.astype(np.uint8),
        tokens_truncated=int(cut_a.sum() + cut_b.sum()),
        segments_dropped=segments_dropped,
    )


def sample_instances(
    documents: TokenizedDocuments, options: PretrainingDataOptions, rng: np.random.Generator
) -> Instances:
    """Packs every document as often as its weight says, in the way of `options.objective`.

    A document of weight 2.3 is packed twice, and with probability 0.3 a third time, each time anew; one of weight 0.3
    only with that probability. Candidates for a random B are the other documents that are packed in the same round,
    never another copy of the same.

    Args:
        documents: the bucket.
        options: objective, max_seq_length, short_seq_prob, balance_next_sentence are read.
        rng: the only source of chance.

    Returns:
        The instances, in no meaningful order.
    """
    length, short = options.max_seq_length, options.short_seq_prob
    if (documents.weights == 1).all():
        return sample_pairs(documents, length, short, rng)
    copies = np.floor(documents.weights) + (rng.random(len(documents)) < documents.weights % 1)
    rounds = [
        _sample_some(documents, copies > number, length, short, rng) for number in range(int(copies.max(initial=1)))
    ]
    return Instances(
        a_start=np.concatenate([some.a_start for some in rounds]),
        a_length=np.concatenate([some.a_length for some in rounds]),
        b_start=np.concatenate([some.b_start for some in rounds]),
        b_length=np.concatenate([some.b_length for some in rounds]),
        labels=np.concatenate([some.labels for some in rounds]),
        tokens_truncated=sum(some.tokens_truncated for some in rounds),
        segments_dropped=sum(some.segments_dropped for some in rounds),
    )


def _sample_some(
    documents: TokenizedDocuments,
    chosen: np.ndarray,
    max_seq_length: int,
    short_seq_prob: float,
    rng: np.random.Generator,
) -> Instances:
    """`sample_pairs` of the chosen documents (bool [documents]), as runs of the token array of all."""
    sentences = np.diff(documents.document_starts)
    lengths = np.diff(documents.sentence_starts)[np.repeat(chosen, sentences)]
    some = TokenizedDocuments(
        documents.token_ids,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([[0], np.cumsum(sentences[chosen])]).astype(np.int64),
        documents.weights[chosen],
    )
    pairs = sample_pairs(some, max_seq_length, short_seq_prob, rng)
    # From places among the chosen documents' tokens to places among all tokens.
    here = some.sentence_starts[some.document_starts[:-1]]
    there = documents.sentence_starts[documents.document_starts[:-1]][chosen]
    moved = {
        name: getattr(pairs, name) + (there - here)[np.searchsorted(here, getattr(pairs, name), side="right") - 1]
        for name in ("a_start", "b_start")
        if len(pairs)
    }
    return dataclasses.replace(pairs, **moved)
