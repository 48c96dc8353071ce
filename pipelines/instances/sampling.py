"""The documents of a bucket -> instances, by the objective, each document as often as it weighs."""

import dataclasses

import numpy as np

from pipelines.instances.full_sentences import full_sentences
from pipelines.instances.instances import Instances, TokenizedDocuments
from pipelines.instances.options import PretrainingDataOptions
from pipelines.instances.sentence_pairs import next_sentence_pairs, sentence_order_pairs


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
    if (documents.weights == 1).all():
        return _sample_each(documents, options, rng)
    copies = np.floor(documents.weights) + (rng.random(len(documents)) < documents.weights % 1)
    rounds = [_sample_some(documents, copies > number, options, rng) for number in range(int(copies.max(initial=1)))]
    return Instances(
        a_start=np.concatenate([some.a_start for some in rounds]),
        a_length=np.concatenate([some.a_length for some in rounds]),
        b_start=np.concatenate([some.b_start for some in rounds]),
        b_length=np.concatenate([some.b_length for some in rounds]),
        labels=np.concatenate([some.labels for some in rounds]),
        tokens_truncated=sum(some.tokens_truncated for some in rounds),
        tokens_packed=sum(some.tokens_packed for some in rounds),
        segments_dropped=sum(some.segments_dropped for some in rounds),
    )


def _sample_each(documents: TokenizedDocuments, options: PretrainingDataOptions, rng: np.random.Generator) -> Instances:
    """Packs every document once."""
    length, short = options.max_seq_length, options.short_seq_prob
    if options.objective == "sop":
        return sentence_order_pairs(documents, length, short, rng)
    if options.objective == "mlm":
        return full_sentences(documents, length, short, rng)
    return next_sentence_pairs(documents, length, short, rng, balance=options.balance_next_sentence)


def _sample_some(
    documents: TokenizedDocuments, chosen: np.ndarray, options: PretrainingDataOptions, rng: np.random.Generator
) -> Instances:
    """Packs the chosen documents (bool [documents]) once, as runs of the token array of all."""
    sentences = np.diff(documents.document_starts)
    lengths = np.diff(documents.sentence_starts)[np.repeat(chosen, sentences)]
    some = TokenizedDocuments(
        documents.token_ids,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([[0], np.cumsum(sentences[chosen])]).astype(np.int64),
        documents.weights[chosen],
    )
    instances = _sample_each(some, options, rng)
    # From places among the chosen documents' tokens to places among all tokens.
    here = some.sentence_starts[some.document_starts[:-1]]
    there = documents.sentence_starts[documents.document_starts[:-1]][chosen]
    moved = {
        name: start + (there - here)[np.searchsorted(here, start, side="right") - 1]
        for name in ("a_start", "b_start")
        if len(start := getattr(instances, name))
    }
    return dataclasses.replace(instances, **moved)
