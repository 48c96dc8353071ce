"""Array representations of tokenized documents and of the instances sampled from them, and ranges of such arrays.

`sampling.py` samples instances from documents.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Documents as flat arrays, without empty documents or sentences.

    Attributes:
        token_ids: int32 [tokens].
        sentence_starts: int64 [sentences + 1], index in token_ids of the start of each sentence, and the number of
            tokens.
        document_starts: int64 [documents + 1], index of the first sentence of each document, and the number of
            sentences.
        weights: float64 [documents], sampling weights: how often each document is sampled per copy, on average.
    """

    token_ids: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def document_of_sentence(self) -> np.ndarray:
        """Return the document index of each sentence: int64 [sentences]."""
        return np.repeat(np.arange(len(self)), np.diff(self.document_starts))


@dataclasses.dataclass(frozen=True)
class Instances:
    """Instances as ranges of `TokenizedDocuments.token_ids`; all arrays except labels are int64 [instances].

    Attributes:
        a_start, a_length: segment A.
        b_start, b_length: segment B; length 0 without B.
        labels: uint8 [instances]; 1 if B does not follow A, that is, B is random (nsp) or swapped with A (sop).
        tokens_truncated: tokens that are in no instance because pairs were truncated. Tokens truncated from a random B
            are not counted, because that text is also sampled on its own.
        segments_dropped: segments that could not be paired, or were too short to split.
        tokens_packed: tokens of all sampled documents, the denominator of tokens_truncated.
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
        """Return the length of each instance, including [CLS] and [SEP]: int64 [instances]."""
        return self.a_length + self.b_length + 2 + (self.b_length > 0)


def from_sentences(
    token_ids: np.ndarray, token_starts: np.ndarray, sentences: np.ndarray, weights: np.ndarray | None = None
) -> TokenizedDocuments:
    """Build `TokenizedDocuments` without empty sentences and documents.

    Args:
        token_ids: int32 [tokens].
        token_starts: int64 [sentences + 1], index in token_ids of the start of each sentence.
        sentences: int64 [documents], number of sentences of each document, including empty ones.
        weights: float64 [documents], or None for weights of 1.
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


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the concatenation of n ranges: start, start + 1, ..., start + length - 1 of each.

    Args:
        starts: int64 [n].
        lengths: int64 [n].

    Returns:
        int64 [sum of lengths].
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
