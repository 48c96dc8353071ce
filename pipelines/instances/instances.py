"""The arrays that examples are made from: a partition's documents, and the instances sampled from them as runs.

`sampling.py` makes the one from the other.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Documents as flat arrays; no document and no sentence is empty.

    Attributes:
        token_ids: int32 [tokens].
        sentence_starts: int64 [sentences + 1], where each sentence starts in token_ids; the last is their number.
        document_starts: int64 [documents + 1], where each document starts among the sentences.
        weights: float64 [documents], how often each is packed, on average over copies.
    """

    token_ids: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def document_of_sentence(self) -> np.ndarray:
        """Return the number of each sentence's document, int64 [sentences]."""
        return np.repeat(np.arange(len(self)), np.diff(self.document_starts))


@dataclasses.dataclass(frozen=True)
class Instances:
    """Instances as runs of `TokenizedDocuments.token_ids`; every array int64 [instances] but labels.

    Attributes:
        a_start, a_length: segment A.
        b_start, b_length: segment B; length 0 where there is none.
        labels: uint8 [instances]; 1 where B is not what follows A: drawn from another document, or swapped with A.
        tokens_truncated: tokens cut from pairs to fit max_seq_length, and thereby in no instance; what is cut from a B
            of another document does not count, for that text has its own turn.
        segments_dropped: single segments that nothing could be paired with, or too short to split.
        tokens_packed: tokens of the documents, as often as they were packed; what tokens_truncated is a share of.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    labels: np.ndarray
    tokens_truncated: int
    segments_dropped: int
    tokens_packed: int = 0

    def __len__(self) -> int:
        return len(self.a_start)

    @property
    def lengths(self) -> np.ndarray:
        """Return the tokens of each instance with [CLS] and one or two [SEP], int64 [instances]."""
        return self.a_length + self.b_length + 2 + (self.b_length > 0)


def from_sentences(
    token_ids: np.ndarray, token_starts: np.ndarray, sentences: np.ndarray, weights: np.ndarray | None = None
) -> TokenizedDocuments:
    """Build the arrays, leaving out sentences without tokens and documents without sentences.

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
