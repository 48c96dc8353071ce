"""Find documents that share text with evaluation data: a run of 13 words (Brown et al. 2020, appendix C).

Words are compared in lower case, letters and digits alone, so that neither punctuation nor tokenization hides a match.
An evaluation text of fewer than 13 words cannot be found.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.cleaning.ngrams import ngram_keys, plain_word_hashes, plain_words
from pipelines.sources import SourceError
from pipelines.sources.files import open_decompressed
from pipelines.sources.wide_encodings import HEAD_BYTES, wide_encoding

NGRAM = 13


def document_keys(text: str) -> np.ndarray:
    """Return the keys of all runs of 13 words of a text: uint64 [max(0, W - 12)]."""
    return ngram_keys(plain_word_hashes(text), NGRAM)


def evaluation_keys(texts: Iterable[str]) -> np.ndarray:
    """Return the keys of all runs of 13 words of evaluation texts, sorted and unique: uint64 [N]."""
    keys = [document_keys(text) for text in texts]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *keys]))


class Run(NamedTuple):
    """A run of 13 words that a document shares with evaluation texts.

    Attributes:
        words: as they are compared, in lower case without punctuation.
        place: of the run in the keys of the evaluation texts.
    """

    words: str
    place: int


def find_run(sentences: Sequence[str], keys: np.ndarray) -> Run | None:
    """Return the first run of 13 words of a document, across sentences too, that evaluation texts have.

    Args:
        sentences: of the document.
        keys: uint64 [N] of the evaluation texts, as `evaluation_keys` returns them.
    """
    if not len(keys):
        return None
    text = "\n".join(sentences)
    runs = document_keys(text)
    places = np.minimum(np.searchsorted(keys, runs), len(keys) - 1)
    shared = np.flatnonzero(keys[places] == runs)
    if not len(shared):
        return None
    first = int(shared[0])
    return Run(" ".join(plain_words(text)[first : first + NGRAM]), int(places[first]))


class EvaluationFiles(NamedTuple):
    """All runs of 13 words of evaluation files.

    Attributes:
        paths: the files.
        keys: uint64 [N] of the runs, sorted, none twice.
        files: int32 [N], of each key the first file that has it.
    """

    paths: tuple[str, ...]
    keys: np.ndarray
    files: np.ndarray

    def describe(self, run: Run) -> dict[str, str]:
        """Return what `rejected/*.jsonl` says of a document with a shared run."""
        return {"evaluation_file": self.paths[self.files[run.place]], "matching_words": run.words}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def read_evaluation_texts(path: str) -> Iterator[str]:
    """Return the texts of an evaluation file on any Beam filesystem, compressed or not.

    `.json` (SQuAD's and others): every string in it. `.jsonl`: the same of every line. `.tsv` and
    `.csv`-like tables with tabs (GLUE's): every field. Anything else: every block of lines between empty lines.

    Raises:
        SourceError: the file is missing, not UTF-8 or not the JSON its name says.
    """
    stem = path.lower()
    for suffix in (".gz", ".bz2", ".zst", ".xz"):
        stem = stem.removesuffix(suffix)
    with open_decompressed(path) as stream:
        data = stream.read()
    if encoding := wide_encoding(data[:HEAD_BYTES]):
        raise SourceError(
            f"--decontaminate {path} is {encoding}; "
            f"convert it first: iconv -f {encoding.lower()} -t utf-8 FILE > FILE.txt"
        )
    try:
        text = data.decode("utf-8-sig")
        if stem.endswith(".json"):
            yield from _strings(json.loads(text))
        elif stem.endswith((".jsonl", ".ndjson")):
            # Not str.splitlines: JSON may have U+2028 within a string.
            for line in text.split("\n"):
                if line.strip():
                    yield from _strings(json.loads(line))
        elif stem.endswith((".tsv", ".csv")):
            yield from (field for line in text.split("\n") for field in line.split("\t"))
        else:
            yield from re.split(r"\n\s*\n", text)
    except (ValueError, RecursionError) as error:
        # Python's message about an integer of thousands of digits is about Python.
        reason = str(error).partition(";")[0]
        raise SourceError(
            f"--decontaminate {path} cannot be read ({reason}); give SQuAD JSON, JSON lines, TSV or plain text in UTF-8"
        ) from error


@functools.cache
def load_evaluation(paths: tuple[str, ...]) -> EvaluationFiles:
    """Read evaluation files, once a process.

    Raises:
        SourceError: a file cannot be read, or none holds a run of 13 words.
    """
    of_file = [evaluation_keys(read_evaluation_texts(path)) for path in paths]
    # The first place of each key, in the order of the files.
    keys, first = np.unique(np.concatenate([np.empty(0, np.uint64), *of_file]), return_index=True)
    files = np.repeat(np.arange(len(paths), dtype=np.int32), [len(keys_of_file) for keys_of_file in of_file])[first]
    if not len(keys):
        raise SourceError(
            f"--decontaminate {' '.join(paths)}: no text of {NGRAM} words or more; give files with longer texts"
        )
    return EvaluationFiles(paths, keys, files)
