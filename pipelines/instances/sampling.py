"""Sample the instances of a partition for an objective, with document weights."""

import dataclasses

import numpy as np

from beambert.pipelines.instances.full_sentences import full_sentences
from beambert.pipelines.instances.instances import Instances, TokenizedDocuments
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.instances.sentence_pairs import next_sentence_pairs, sentence_order_pairs


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
