"""Finds documents that share text with evaluation data: a run of 13 words (Brown et al. 2020, appendix C).

Words are compared in lower case, letters and digits alone, so that neither punctuation nor tokenisation hides a match.
An evaluation text of fewer than 13 words cannot be found.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pipelines.ngrams import ngram_keys, plain_word_hashes
from pipelines.sources import SourceError
from pipelines.sources.files import open_decompressed

NGRAM = 13


def document_keys(text: str) -> np.ndarray:
    """Keys of all runs of 13 words of a text: uint64 [max(0, W - 12)]."""
    return ngram_keys(plain_word_hashes(text), NGRAM)


def evaluation_keys(texts: Iterable[str]) -> np.ndarray:
    """Keys of all runs of 13 words of evaluation texts, sorted, none twice: uint64 [N], 8 bytes a run."""
    keys = [document_keys(text) for text in texts]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *keys]))


def is_contaminated(sentences: Sequence[str], keys: np.ndarray) -> bool:
    """Whether a document shares a run of 13 words, across sentences too, with the evaluation texts behind `keys`."""
    if not len(keys):
        return False
    runs = document_keys("\n".join(sentences))
    places = np.searchsorted(keys, runs)
    return bool((keys[np.minimum(places, len(keys) - 1)] == runs).any())


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
    """The texts of an evaluation file on any Beam filesystem, compressed or not.

    `.json` (SQuAD's and others): every string in it, wherever it stands. `.jsonl`: the same of every line. `.tsv` and
    `.csv`-like tables with tabs (GLUE's): every field. Anything else: every block of lines between empty lines.

    Raises:
        SourceError: the file is missing, not UTF-8 or not the JSON its name says.
    """
    stem = path.lower()
    for suffix in (".gz", ".bz2", ".zst", ".xz"):
        stem = stem.removesuffix(suffix)
    with open_decompressed(path) as stream:
        data = stream.read()
    try:
        text = data.decode("utf-8-sig")
        if stem.endswith(".json"):
            yield from _strings(json.loads(text))
        elif stem.endswith((".jsonl", ".ndjson")):
            for line in text.splitlines():
                if line.strip():
                    yield from _strings(json.loads(line))
        elif stem.endswith((".tsv", ".csv")):
            yield from (field for line in text.split("\n") for field in line.split("\t"))
        else:
            yield from re.split(r"\n\s*\n", text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SourceError(
            f"--decontaminate {path} cannot be read ({error}); give SQuAD JSON, JSON lines, TSV or plain text in UTF-8"
        ) from error


@functools.cache
def load_keys(paths: tuple[str, ...]) -> np.ndarray:
    """`evaluation_keys` of files, once a process.

    Raises:
        SourceError: a file cannot be read, or none holds a run of 13 words.
    """
    keys = evaluation_keys(text for path in paths for text in read_evaluation_texts(path))
    if not len(keys):
        raise SourceError(
            f"--decontaminate {' '.join(paths)}: no text of {NGRAM} words or more; give files with longer texts"
        )
    return keys
