"""Sample instances of whole sentences without pairs, for the masked LM objective alone.

This is DOC-SENTENCES of Liu et al. 2019 (RoBERTa), section 4.2.
"""

import dataclasses

import numpy as np

from beambert.pipelines.instances.document_chunks import chunk_starts, target_lengths
from beambert.pipelines.instances.instances import Instances, TokenizedDocuments
from beambert.pipelines.instances.ragged import ranges


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
