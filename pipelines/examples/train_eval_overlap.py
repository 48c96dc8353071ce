"""Measure the overlap of the validation split with the training text, by sentences and by documents.

Equal documents are always in the same split, which depends on a hash of the text. Near-duplicates can be in different
splits: other editions, copies with another footer, or pages from the same template.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute

from beambert.pipelines.corpus.corpus_manifest import CorpusReader, CorpusShard

# Minimum length of a sentence in characters; shorter ones repeat by chance.
SENTENCE_CHARACTERS = 40
# Maximum validation sentences to search for. Documents are in hash order, so the first ones are a random sample.
MAX_SENTENCES = 100_000
# Minimum fraction of its sentences in the training text for a validation document to count as found.
DOCUMENT_SHARE = 0.5


class ValidationSentences(NamedTuple):
    """Sentences of the validation split to search for in the training text.

    Attributes:
        sentences: string [S], distinct sentences of at least `SENTENCE_CHARACTERS`, at most `MAX_SENTENCES`.
        numbers: int64 [N], indices in `sentences` of the sentences of all documents that are searched completely.
        documents: int64 [N], document index of each of these sentences, from 0 without gaps.
    """

    sentences: pyarrow.Array
    numbers: np.ndarray
    documents: np.ndarray


class Overlap(NamedTuple):
    """Counts of the validation text that occurs in the training text.

    Attributes:
        documents: validation documents whose longer sentences were all searched.
        documents_found: documents with a fraction of `DOCUMENT_SHARE` or more of these sentences in the training text.
        sentences: validation sentences that were searched.
        sentences_found: sentences that occur in the training text.
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
        if shard.split != "validation" or distinct >= MAX_SENTENCES:
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
    # Indices are in order of first occurrence.
    encoded = pyarrow.concat_arrays(sentences).dictionary_encode()
    numbers, of_document = encoded.indices.to_numpy().astype(np.int64), np.concatenate(documents)
    is_complete = ~np.isin(of_document, of_document[numbers >= MAX_SENTENCES])
    _, of_complete = np.unique(of_document[is_complete], return_inverse=True)
    return ValidationSentences(encoded.dictionary[:MAX_SENTENCES], numbers[is_complete], of_complete.astype(np.int64))


def matching_sentences(table: pyarrow.Table, validation: ValidationSentences) -> np.ndarray:
    """Return the distinct indices of the validation sentences that occur in a table of training documents: int64."""
    # Short training sentences need no filter, because none of them is in value_set.
    sentences = table["sentences"].combine_chunks().flatten()
    numbers = pyarrow.compute.index_in(sentences, value_set=validation.sentences).drop_null()
    return np.unique(numbers.to_numpy()).astype(np.int64)


def union(results: Iterable[np.ndarray]) -> np.ndarray:
    """Return the distinct indices in several results of `matching_sentences`."""
    return np.unique(np.concatenate([np.zeros(0, np.int64), *results]))


def count_overlap(validation: ValidationSentences, numbers: np.ndarray) -> Overlap:
    """Return the counts of the overlap.

    Args:
        validation: the sentences that were searched.
        numbers: int64, indices of the sentences found, from `union`.
    """
    is_found = np.zeros(len(validation.sentences), bool)
    is_found[numbers] = True
    of_document = np.bincount(validation.documents)
    found_of_document = np.bincount(validation.documents, weights=is_found[validation.numbers])
    documents_found = int(np.count_nonzero(found_of_document >= DOCUMENT_SHARE * of_document))
    return Overlap(len(of_document), documents_found, len(validation.sentences), len(numbers))
