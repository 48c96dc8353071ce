"""Overlap of the validation split with the training text: sentences of some length, and documents of them.

No document is equal to one of the other split, for its text decides on its split. What can be on both sides is most of
a document: an edition, a copy with another footer, a page made from a template.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow
import pyarrow.compute

from pipelines.corpus.corpus_manifest import CorpusShard
from pipelines.corpus.corpus_reader import CorpusReader

# Shorter sentences are alike by chance.
SENTENCE_CHARACTERS = 40
# Validation sentences to search for; documents lie in order of a hash, so that the first are a random sample.
MOST_SENTENCES = 100_000
# A validation document counts as found from this share of its sentences.
DOCUMENT_SHARE = 0.5


class ValidationSentences(NamedTuple):
    """Sentences of the validation split to search for in the training text.

    Attributes:
        sentences: distinct sentences of `SENTENCE_CHARACTERS` and more, at most `MOST_SENTENCES`; string [S].
        numbers: int64 [N], places in `sentences`: those of every document whose sentences are all looked for.
        documents: int64 [N], which document each of them is of, counted from 0 without gaps.
    """

    sentences: pyarrow.Array
    numbers: np.ndarray
    documents: np.ndarray


class Overlap(NamedTuple):
    """Counts of the validation text that occurs in the training text.

    Attributes:
        documents, documents_found: validation documents all of whose longer sentences were searched for, and those with
            `DOCUMENT_SHARE` or more of these sentences in the training text.
        sentences, sentences_found: validation sentences that were searched for, and those that a training document has.
    """

    documents: int
    documents_found: int
    sentences: int
    sentences_found: int


def read_validation_sentences(corpus: CorpusReader, shards: Iterable[CorpusShard]) -> ValidationSentences:
    """Read the validation shards of a corpus."""
    sentences = [pyarrow.array([], pyarrow.string())]
    documents = [np.zeros(0, np.int64)]
    number = distinct = 0
    for shard in shards:
        if shard.split != "validation" or distinct >= MOST_SENTENCES:
            continue
        table = corpus.read_shard(shard.name, ["sentences"])
        in_document = table["sentences"].combine_chunks()
        flat = in_document.flatten()
        is_long = pyarrow.compute.greater_equal(pyarrow.compute.utf8_length(flat), SENTENCE_CHARACTERS)
        of_document = np.repeat(np.arange(len(in_document)), np.diff(in_document.offsets.to_numpy()))
        sentences.append(flat.filter(is_long))
        documents.append(number + of_document[is_long.to_numpy(zero_copy_only=False)])
        number += len(in_document)
        distinct = len(pyarrow.concat_arrays(sentences).unique())
    # Numbered in the order in which they first occur.
    encoded = pyarrow.concat_arrays(sentences).dictionary_encode()
    numbers, of_document = encoded.indices.to_numpy().astype(np.int64), np.concatenate(documents)
    is_whole = ~np.isin(of_document, of_document[numbers >= MOST_SENTENCES])
    _, of_whole = np.unique(of_document[is_whole], return_inverse=True)
    return ValidationSentences(encoded.dictionary[:MOST_SENTENCES], numbers[is_whole], of_whole.astype(np.int64))


def found_in(table: pyarrow.Table, validation: ValidationSentences) -> np.ndarray:
    """Return the numbers of the validation sentences that occur in a table of training documents; int64, distinct."""
    # The short sentences need no filter here: none of them is among those looked for.
    sentences = table["sentences"].combine_chunks().flatten()
    numbers = pyarrow.compute.index_in(sentences, value_set=validation.sentences).drop_null()
    return np.unique(numbers.to_numpy()).astype(np.int64)


class FindOverlap(beam.DoFn):
    """Training shard -> what `found_in` finds in it."""

    def __init__(self, corpus: CorpusReader, shards: list[CorpusShard]) -> None:
        self._corpus = corpus
        self._shards = [shard for shard in shards if shard.split == "validation"]

    def setup(self) -> None:
        """Read the validation text, once per worker thread."""
        self._validation = read_validation_sentences(self._corpus, self._shards)

    def process(self, shard: CorpusShard) -> Iterator[np.ndarray]:
        """Search one shard for the validation sentences."""
        if shard.split == "train":
            yield found_in(self._corpus.read_shard(shard.name, ["sentences"]), self._validation)


def union(results: Iterable[np.ndarray]) -> np.ndarray:
    """Return the distinct numbers of many results of `found_in`."""
    return np.unique(np.concatenate([np.zeros(0, np.int64), *results]))


def overlap_of(validation: ValidationSentences, numbers: np.ndarray) -> Overlap:
    """Return how much was found.

    Args:
        validation: the sentences that were searched for.
        numbers: int64, from `union`.
    """
    is_found = np.zeros(len(validation.sentences), bool)
    is_found[numbers] = True
    of_document = np.bincount(validation.documents)
    found_of_document = np.bincount(validation.documents, weights=is_found[validation.numbers])
    documents_found = int(np.count_nonzero(found_of_document >= DOCUMENT_SHARE * of_document))
    return Overlap(len(of_document), documents_found, len(validation.sentences), len(numbers))
