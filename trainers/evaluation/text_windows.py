"""Divide texts into windows of tokens for evaluation.

A text is tokenized as in training, without cleaning, and read in windows that do not overlap: [CLS] tokens [SEP]. Every
token of the text is thus scored once, with the context of its window.

Letters in shapes: N distinct windows, S_i tokens of window i.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.finetuning.tasks.utf8_files import read_text
from beambert.trainers.inference.tokenization import LINES_A_CHUNK

TEXT_UNITS = ("line", "document")


class Windows(NamedTuple):
    """The distinct windows of texts.

    Attributes:
        rows: token ids from [CLS] to [SEP], int32 [S_i] each, in the order of their first occurrence.
        counts: number of occurrences of each window, int64 [N].
    """

    rows: list[np.ndarray]
    counts: np.ndarray

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all occurrences, without [CLS] and [SEP]."""
        return sum(int(count) * (len(row) - 2) for row, count in zip(self.rows, self.counts, strict=True))

    def occurrences(self, token_id: int) -> int:
        """Return how often a token occurs."""
        return sum(
            int(count) * int(np.count_nonzero(row == token_id))
            for row, count in zip(self.rows, self.counts, strict=True)
        )


def read_texts(files: Iterable[Path], unit: str) -> Iterator[str]:
    """Yield the texts of UTF-8 files.

    Args:
        files: the files.
        unit: one of `TEXT_UNITS`, as for `text_units`.

    Raises:
        TaskDataError: a file cannot be read, or is not UTF-8.
    """
    for path in files:
        yield from text_units(read_text(path).split("\n"), unit)


def text_units(lines: Iterable[str], unit: str) -> Iterator[str]:
    """Yield the texts of lines: each line that is not blank, or with "document" the lines up to a blank one."""
    if unit == "line":
        yield from (line for line in lines if line.strip())
        return
    for is_blank, group in itertools.groupby(lines, key=lambda line: not line.strip()):
        if not is_blank:
            yield " ".join(line.strip() for line in group)


def text_windows(texts: Iterable[str], tokenizer: Tokenizer, max_seq_length: int) -> Windows:
    """Return the windows of texts; a longer text is divided into windows of almost equal lengths.

    Args:
        texts: texts of any length.
        tokenizer: tokenizer of the model.
        max_seq_length: maximum length of a window in tokens, including [CLS] and [SEP].
    """
    vocabulary = tokenizer.vocabulary
    counts: dict[bytes, int] = {}
    remaining = iter(texts)
    while chunk := list(itertools.islice(remaining, LINES_A_CHUNK)):
        ids, splits = tokenizer.encode_batch(chunk)
        for start, end in itertools.pairwise(splits.tolist()):
            number = -(-(end - start) // (max_seq_length - 2))
            for part in np.array_split(ids[start:end], number) if number else []:
                row = np.concatenate([[vocabulary.cls_id], part, [vocabulary.sep_id]]).astype("<i4").tobytes()
                counts[row] = counts.get(row, 0) + 1
    rows = [np.frombuffer(row, "<i4").astype(np.int32) for row in counts]
    return Windows(rows, np.array(list(counts.values()), np.int64))


def sample_windows(windows: Windows, max_tokens: int | None) -> Windows:
    """Return the windows with the smallest content hashes that have up to a number of tokens, at least one window."""
    if max_tokens is None or windows.tokens <= max_tokens:
        return windows
    order = np.argsort(content_keys(windows.rows), kind="stable")
    sizes = np.array([len(row) - 2 for row in windows.rows])[order] * windows.counts[order]
    kept = np.sort(order[: max(int(np.searchsorted(np.cumsum(sizes), max_tokens, side="right")), 1)])
    return Windows([windows.rows[index] for index in kept], windows.counts[kept])


def content_keys(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return a hash of each row, uint64 [N]."""
    digests = (hashlib.blake2b(row.astype("<i4").tobytes(), digest_size=8).digest() for row in rows)
    return np.array([int.from_bytes(digest, "little") for digest in digests], np.uint64)
