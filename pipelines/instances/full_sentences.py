"""Instances without pairs, for masked words alone: whole sentences of one document.

Liu et al. 2019 (RoBERTa), section 4.2, call this DOC-SENTENCES.
"""

import dataclasses

import numpy as np

from pipelines.instances.document_chunks import chunk_starts, target_lengths
from pipelines.instances.instances import Instances, TokenizedDocuments
from pipelines.instances.ragged import ranges


def full_sentences(
    documents: TokenizedDocuments, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> Instances:
    """Pack every document's sentences, as many as fit, one instance after the other; no token is lost.

    A document's target length is max_seq_length - 2, or with probability short_seq_prob uniform from 2 to that. A
    sentence that does not fit goes to the next instance. One that is longer than the target stands alone; only one
    longer than max_seq_length - 2 is cut, into runs of that length and a rest, which are then taken for sentences.

    Nothing but the target is drawn: in another copy a document is packed the same, unless it or the other is
    short. Copies differ by their masks.

    Args:
        documents: the partition.
        max_seq_length: including [CLS] and [SEP]; at least 4.
        short_seq_prob: 0 to 1.
        rng: the only source of chance.

    Returns:
        The instances, A alone; all labels are 0.
    """
    max_num_tokens = max_seq_length - 2
    target = target_lengths(len(documents), max_num_tokens, short_seq_prob, rng)
    cut = _cut_sentences(documents, max_num_tokens)
    starts, document = cut.sentence_starts, cut.document_of_sentence()
    fitting = np.searchsorted(starts, starts[:-1] + target[document], side="right") - 1
    after = np.arange(1, len(starts))
    chunk_end = np.clip(fitting, after, cut.document_starts[document + 1])
    chunks = chunk_starts(cut.document_starts, chunk_end)
    nothing = np.zeros(len(chunks), np.int64)
    return Instances(
        a_start=starts[chunks],
        a_length=starts[chunk_end[chunks]] - starts[chunks],
        b_start=nothing,
        b_length=nothing,
        labels=nothing.astype(np.uint8),
        tokens_truncated=0,
        tokens_packed=int(starts[-1]),
        segments_dropped=0,
    )


def _cut_sentences(documents: TokenizedDocuments, longest: int) -> TokenizedDocuments:
    """Return the same tokens with sentences longer than `longest` cut into sentences of that length and a rest."""
    starts = documents.sentence_starts
    runs = -(-np.diff(starts) // longest)  # of each sentence, rounded up
    place = ranges(np.zeros_like(runs), runs)
    return dataclasses.replace(
        documents,
        sentence_starts=np.append(np.repeat(starts[:-1], runs) + place * longest, starts[-1]),
        document_starts=np.concatenate([[0], np.cumsum(runs)])[documents.document_starts],
    )
