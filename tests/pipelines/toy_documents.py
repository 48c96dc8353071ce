"""Small documents of numbered tokens, and a generator that records its draws."""

import numpy as np
from hypothesis import strategies as st

from beambert.pipelines.instances.instances import TokenizedDocuments

# Lengths of sentences, by document.
corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)


def flat(documents: list[list[list[int]]]) -> TokenizedDocuments:
    """Convert documents to arrays; a document is a list of sentences, and a sentence a list of token IDs."""
    sentences = [sentence for document in documents for sentence in document]
    return TokenizedDocuments(
        token_ids=np.array([token for sentence in sentences for token in sentence], np.int32),
        sentence_starts=np.cumsum([0] + [len(sentence) for sentence in sentences]),
        document_starts=np.cumsum([0] + [len(document) for document in documents]),
        weights=np.ones(len(documents)),
    )


def numbered(lengths: list[list[int]]) -> list[list[list[int]]]:
    """Return documents of the given sentence lengths in which every token is different."""
    tokens = iter(range(1_000_000))
    return [[[next(tokens) for _ in range(length)] for length in document] for document in lengths]


def document_of_token(documents: TokenizedDocuments) -> np.ndarray:
    """Return the document index of each token: int64 [tokens]."""
    return np.repeat(np.arange(len(documents)), np.diff(documents.sentence_starts[documents.document_starts]))


class Recorded:
    """A generator that records its uniform and binomial draws, in order."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.uniforms: list[np.ndarray] = []
        self.binomials: list[np.ndarray] = []

    def random(self, shape):
        self.uniforms.append(self._rng.random(shape))
        return self.uniforms[-1]

    def binomial(self, n, p):
        self.binomials.append(self._rng.binomial(n, p))
        return self.binomials[-1]
