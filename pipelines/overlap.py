"""How much of the held-out text stands in the training text too: whole documents, and sentences of some length."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow
import pyarrow.compute

from pipelines.corpus_files import Part
from pipelines.corpus_reader import CorpusReader

# Shorter sentences are alike by chance.
SENTENCE_CHARACTERS = 40
# Held-out sentences looked for; documents lie in order of a hash, so that the first are a random sample.
MOST_SENTENCES = 100_000
# Held-out documents looked for: every worker holds their ids, and of a corpus of terabytes they would be gigabytes.
MOST_DOCUMENTS = 1_000_000
_COLUMNS = ["id", "sentences"]


class HeldOut(NamedTuple):
    """Held-out text: ids of documents, at most `MOST_DOCUMENTS`, and distinct sentences of `SENTENCE_CHARACTERS` and
    more, at most `MOST_SENTENCES`.
    """

    documents: pyarrow.Array
    sentences: pyarrow.Array


class Overlap(NamedTuple):
    """What of the held-out text stands in the training text.

    Attributes:
        documents, documents_found: held-out documents that were looked for, and those whose identity a training
            document has.
        sentences, sentences_found: held-out sentences that were looked for, and those that a training document has.
    """

    documents: int
    documents_found: int
    sentences: int
    sentences_found: int


def read_held_out(corpus: CorpusReader, parts: Iterable[Part]) -> HeldOut:
    """Reads the held-out parts of a corpus."""
    documents: list[pyarrow.Array] = [pyarrow.array([], pyarrow.string())]
    sentences = pyarrow.array([], pyarrow.string())
    number = 0
    for part in parts:
        if part.split != "validation" or number >= MOST_DOCUMENTS:
            continue
        wanted = len(sentences) < MOST_SENTENCES
        table = corpus.read_part(part.name, _COLUMNS if wanted else _COLUMNS[:1])
        documents.append(table["id"].combine_chunks()[: MOST_DOCUMENTS - number])
        number += len(documents[-1])
        if wanted:
            sentences = pyarrow.concat_arrays([sentences, _long_sentences(table)]).unique()[:MOST_SENTENCES]
    return HeldOut(pyarrow.concat_arrays(documents), sentences)


def found_in(table: pyarrow.Table, held_out: HeldOut) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the held-out documents and sentences that a table of training documents has; int64, distinct."""
    # The short sentences need no filter here: none of them is among those looked for.
    sentences = table["sentences"].combine_chunks().flatten()
    pairs = ((table["id"].combine_chunks(), held_out.documents), (sentences, held_out.sentences))
    found = (
        np.unique(pyarrow.compute.index_in(values, value_set=known).drop_null().to_numpy()) for values, known in pairs
    )
    documents_found, sentences_found = (numbers.astype(np.int64) for numbers in found)
    return documents_found, sentences_found


def _long_sentences(table: pyarrow.Table) -> pyarrow.Array:
    sentences = table["sentences"].combine_chunks().flatten()
    return sentences.filter(pyarrow.compute.greater_equal(pyarrow.compute.utf8_length(sentences), SENTENCE_CHARACTERS))


class FindHeldOut(beam.DoFn):
    """Training part -> what `found_in` finds in it."""

    def __init__(self, corpus: CorpusReader, parts: list[Part]) -> None:
        self._corpus = corpus
        self._parts = [part for part in parts if part.split == "validation"]

    def setup(self) -> None:
        """Reads the held-out text, once a worker thread."""
        self._held_out = read_held_out(self._corpus, self._parts)

    def process(self, part: Part) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Looks for it in one part."""
        if part.split == "train":
            table = self._corpus.read_part(part.name, _COLUMNS)
            yield found_in(table, self._held_out)


def union(found: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers of many results of `found_in`."""
    found = list(found)
    empty = np.zeros(0, np.int64)
    documents, sentences = (np.unique(np.concatenate([empty, *(each[i] for each in found)])) for i in range(2))
    return documents, sentences
