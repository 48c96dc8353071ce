"""Find documents that share a 13-gram of words with evaluation data (Brown et al. 2020, appendix C).

Words are compared in lower case and without punctuation, so that matches do not depend on either. Both texts are
compared in NFC, without HTML entities and control characters, regardless of `--skip_rules`. Evaluation texts of fewer
than 13 words cannot be matched.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from beambert.pipelines.cleaning.ngrams import ngram_keys, plain_word_hashes, plain_words
from beambert.pipelines.cleaning.residual_markup import unescape_entities
from beambert.pipelines.cleaning.rules import normalize_nfc, remove_control_characters
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.frames import stem_of
from beambert.pipelines.formats.lines import HEAD_BYTES, wide_encoding
from beambert.pipelines.sources.files import open_decompressed

NGRAM = 13


def _normalize(text: str) -> str:
    """Apply the cleaning rules that change the form of words: entities, NFC, control characters."""
    return remove_control_characters(normalize_nfc(unescape_entities(text) if "&" in text else text))


def document_keys(text: str) -> np.ndarray:
    """Return the hashes of all 13-grams of a text of W words: uint64 [max(0, W - 12)]."""
    return ngram_keys(plain_word_hashes(_normalize(text)), NGRAM)


def evaluation_keys(texts: Iterable[str]) -> np.ndarray:
    """Return the distinct hashes of all 13-grams of evaluation texts, sorted: uint64 [N]."""
    keys = [document_keys(text) for text in texts]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *keys]))


class SharedNgram(NamedTuple):
    """A 13-gram that a document shares with evaluation texts.

    Attributes:
        words: the words as compared, in lower case without punctuation.
        key_index: index of its hash in the keys of the evaluation texts.
    """

    words: str
    key_index: int


def find_shared_ngram(sentences: Sequence[str], keys: np.ndarray) -> SharedNgram | None:
    """Return the first 13-gram of a document that occurs in evaluation texts; it may span sentences.

    Args:
        sentences: the sentences of the document.
        keys: uint64 [N], sorted hashes of the evaluation texts, from `evaluation_keys`.
    """
    if not len(keys):
        return None
    text = "\n".join(sentences)
    ngrams = document_keys(text)
    indices = np.minimum(np.searchsorted(keys, ngrams), len(keys) - 1)
    shared = np.flatnonzero(keys[indices] == ngrams)
    if not len(shared):
        return None
    first = int(shared[0])
    return SharedNgram(" ".join(plain_words(_normalize(text))[first : first + NGRAM]), int(indices[first]))


class EvaluationFiles(NamedTuple):
    """The 13-grams of all evaluation files.

    Attributes:
        paths: the files.
        keys: uint64 [N], distinct hashes of the 13-grams, sorted.
        files: int32 [N], index in paths of the first file with each 13-gram.
    """

    paths: tuple[str, ...]
    keys: np.ndarray
    files: np.ndarray

    def describe(self, ngram: SharedNgram) -> dict[str, str]:
        """Return the fields of `rejected/*.jsonl` for a document with a shared 13-gram."""
        return {"evaluation_file": self.paths[self.files[ngram.key_index]], "matching_words": ngram.words}


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def read_evaluation_texts(path: str) -> Iterator[str]:
    """Yield the texts of an evaluation file on any Beam filesystem, compressed or not.

    The suffix selects the format. `.json` (such as SQuAD): every string. `.jsonl`, `.ndjson`: every string of every
    line. `.tsv`, `.csv` (such as GLUE): every tab-separated field. Other files: every paragraph, separated by blank
    lines.

    Raises:
        SourceError: the file is missing, is not UTF-8, or does not contain the JSON that its suffix announces.
    """
    stem = stem_of(path)
    with open_decompressed(path) as stream:
        data = stream.read()
    if encoding := wide_encoding(data[:HEAD_BYTES]):
        raise SourceError(
            f"--decontaminate {path} is encoded in {encoding}, not in UTF-8; "
            f"convert the file: iconv -f {encoding.lower()} -t utf-8 FILE > FILE.txt"
        )
    try:
        text = data.decode("utf-8-sig")
        if stem.endswith(".json"):
            yield from _strings(json.loads(text))
        elif stem.endswith((".jsonl", ".ndjson")):
            # str.splitlines would also split at U+2028, which JSON allows inside strings.
            for line in text.split("\n"):
                if line.strip():
                    yield from _strings(json.loads(line))
        elif stem.endswith((".tsv", ".csv")):
            yield from (field for line in text.split("\n") for field in line.split("\t"))
        else:
            yield from re.split(r"\n\s*\n", text)
    except (ValueError, RecursionError) as error:
        # The rest of Python's message about very long integers is advice on Python settings.
        reason = str(error).partition(";")[0]
        raise SourceError(
            f"--decontaminate {path} cannot be read ({reason}); give JSON, JSON Lines, TSV or plain text in UTF-8"
        ) from error


@functools.cache
def load_evaluation(paths: tuple[str, ...]) -> EvaluationFiles:
    """Read evaluation files; the result is cached in the process.

    Raises:
        SourceError: a file cannot be read, or no file contains a text of 13 words.
    """
    of_file = [evaluation_keys(read_evaluation_texts(path)) for path in paths]
    # np.unique returns the first occurrence of each key, in the order of the files.
    keys, first = np.unique(np.concatenate([np.empty(0, np.uint64), *of_file]), return_index=True)
    files = np.repeat(np.arange(len(paths), dtype=np.int32), [len(keys_of_file) for keys_of_file in of_file])[first]
    if not len(keys):
        raise SourceError(
            f"--decontaminate {' '.join(paths)}: no text has {NGRAM} words or more; give files with longer texts"
        )
    return EvaluationFiles(paths, keys, files)
