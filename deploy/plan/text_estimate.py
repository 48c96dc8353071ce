"""Estimate the properties of a corpus from its size alone.

All other properties are those of English Wikipedia (2015, 61 MB, 3,956 articles), as `make bench-scale` measures it.
This module imports neither Beam nor TensorFlow; `text_sample.py` reads files instead.
"""

import dataclasses
import math

import numpy as np

from beambert.pipelines.documents import choose_num_partitions
from beambert.pipelines.instances.instances import TokenizedDocuments, from_sentences

BYTES_A_WORD = 6.27
WIKIPEDIA_DOCUMENT_BYTES = 15_462
# Tokens per whitespace-separated word, by vocabulary size: learned on five sixths of the articles, measured on the
# rest. Punctuation counts as tokens of the adjacent word.
_TOKENS_A_WORD = {
    2_000: 2.312,
    4_000: 1.770,
    8_000: 1.520,
    16_000: 1.378,
    30_522: 1.304,
    60_000: 1.262,
}
_QUANTILES = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1)
# Words in a sentence, and bytes of a document as a multiple of the mean, at these quantiles.
_SENTENCE_WORDS = (1, 2, 4, 10, 14, 16, 19, 22, 25, 29, 36, 43, 52, 59, 89, 234)
_DOCUMENT_SIZE = (
    0.0002,
    0.0032,
    0.0143,
    0.1454,
    0.2689,
    0.4299,
    0.615,
    0.8503,
    1.1973,
    1.6823,
    2.5109,
    3.3385,
    4.3281,
    5.0434,
    6.8871,
    9.8313,
)
_SAMPLE_DOCUMENTS = 2000
_SAMPLE_WORDS = 3_000_000


@dataclasses.dataclass(frozen=True)
class Text:
    """The estimated size of the text after cleaning, with a sample of documents that represents it.

    Attributes:
        bytes, words, documents: totals: UTF-8 bytes, whitespace-separated words, documents.
        files, stored_bytes: number and size of the input files; 0 without --input.
        num_partitions: default of the corpus job, which depends on the input size.
        document_bytes: int64 [D], bytes of each document of the sample.
        document_sentences: int64 [D], sentences of each document of the sample.
        sentence_tokens: int64 [S], tokens of each sentence of the sample.
        sample_words: number of words in the sample.
        origin: source of the totals, as shown in the estimate.
        dump_bytes: bytes of XML of MediaWiki dumps among the input.
    """

    bytes: float
    words: float
    documents: float
    files: int
    stored_bytes: int
    num_partitions: int
    document_bytes: np.ndarray
    document_sentences: np.ndarray
    sentence_tokens: np.ndarray
    sample_words: int
    origin: str
    dump_bytes: float = 0.0

    @property
    def tokens_per_word(self) -> float:
        """Return the WordPiece tokens per word."""
        return float(self.sentence_tokens.sum()) / self.sample_words

    @property
    def tokens(self) -> float:
        """Return the tokens of the whole text."""
        return self.words * self.tokens_per_word

    def tokenized(self) -> TokenizedDocuments:
        """Return the sample as input of the instance sampler; all token ids are 0, since only lengths matter."""
        starts = np.concatenate([[0], np.cumsum(self.sentence_tokens)]).astype(np.int64)
        return from_sentences(np.zeros(int(starts[-1]), np.int32), starts, self.document_sentences)


def tokens_per_word(vocab_size: int) -> float:
    """Return the tokens per word of English text, interpolated over the logarithm of the vocabulary size."""
    sizes = [math.log(size) for size in _TOKENS_A_WORD]
    return float(np.interp(math.log(vocab_size), sizes, list(_TOKENS_A_WORD.values())))


def estimate_text(text_bytes: float, document_bytes: float, vocab_size: int, origin: str) -> Text:
    """Return an estimate for text that is distributed like English Wikipedia.

    Args:
        text_bytes: bytes of the text.
        document_bytes: mean bytes of a document; sizes are distributed like those of articles.
        vocab_size: number of tokens in the vocabulary.
        origin: source of the size, as shown in the estimate.
    """
    words = text_bytes / BYTES_A_WORD
    # At least one document, even where the mean size exceeds the text.
    document_bytes = min(document_bytes, text_bytes)
    number = max(2, min(_SAMPLE_DOCUMENTS, int(_SAMPLE_WORDS * BYTES_A_WORD / document_bytes)))
    # Evenly spaced quantiles in a fixed order: a sample without sampling error.
    rng = np.random.default_rng(20181011)
    sizes = np.interp(rng.permutation((np.arange(number) + 0.5) / number), _QUANTILES, _DOCUMENT_SIZE)
    sizes *= document_bytes / sizes.mean()
    mean_sentence = float(np.interp((np.arange(1000) + 0.5) / 1000, _QUANTILES, _SENTENCE_WORDS).mean())
    # Bounds the work for very large documents.
    words_shown = np.minimum(sizes / BYTES_A_WORD, _SAMPLE_WORDS)
    sentences = np.maximum(1, np.rint(words_shown / mean_sentence)).astype(np.int64)
    total = int(sentences.sum())
    sentence_words = np.interp(rng.permutation((np.arange(total) + 0.5) / total), _QUANTILES, _SENTENCE_WORDS)
    tokens = np.maximum(1, np.rint(sentence_words * tokens_per_word(vocab_size))).astype(np.int64)
    return Text(
        bytes=text_bytes,
        words=words,
        documents=max(1.0, text_bytes / document_bytes),
        files=0,
        stored_bytes=0,
        num_partitions=choose_num_partitions(round(text_bytes)),
        document_bytes=np.rint(sizes).astype(np.int64),
        document_sentences=sentences,
        sentence_tokens=tokens,
        sample_words=round(float(sentence_words.sum())),
        origin=origin,
    )
