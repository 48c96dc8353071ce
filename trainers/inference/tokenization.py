"""Convert lines of text to batches of model inputs, for commands that run a model on many texts."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bert_model.checkpoints.path_contents import contents_of
from trainers.errors import TrainingError
from trainers.inference.model_loading import padded

PAIR_SEPARATOR = " ||| "
# Number of lines that are sorted by length together.
LINES_A_CHUNK = 4096
# Widths are rounded up to a multiple of this, for few distinct shapes.
LENGTH_MULTIPLE = 8


def open_texts(input_file: str) -> BinaryIO:
    """Open the file of --input_file, or standard input for "-".

    Raises:
        TrainingError: the file is missing or a directory.
    """
    if input_file == "-":
        return sys.stdin.buffer
    path = Path(input_file)
    if path.is_dir() or not path.exists():
        raise TrainingError(f"--input_file {path} {contents_of(path)}: use a text file with one text per line")
    return path.open("rb")


class TextLines:
    """The decoded lines of a binary file.

    Attributes:
        bytes_read: number of bytes read so far.
        corrupt: number of lines so far with invalid UTF-8, which becomes U+FFFD and is removed by the tokenizer.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes_read = 0
        self.corrupt = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.bytes_read += len(line)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                self.corrupt += 1
                yield line.decode("utf-8", errors="replace")


def split_pair(line: str) -> tuple[str, str | None]:
    """Split a line at the last " ||| "; return the stripped text and the second text, None where it is not a pair."""
    first, separator, second = line.strip().rpartition(PAIR_SEPARATOR)
    return (first, second) if separator else (second, None)


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield batches of indices with similar lengths, shortest first, to limit padding."""
    order = np.argsort(lengths, kind="stable").tolist()
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def model_inputs(
    rows: Sequence[np.ndarray], segments: Sequence[np.ndarray], pad_id: int, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return input_ids, input_mask and segment_ids, int32 [B, S], for rows int32 [S_i] with S_i <= max_seq_length."""
    input_ids = padded(rows, pad_id, LENGTH_MULTIPLE)[:, :max_seq_length]  # [B, S]
    input_mask = np.arange(input_ids.shape[1]) < np.array([[len(row)] for row in rows])
    segment_ids = padded(segments, 0, LENGTH_MULTIPLE)[:, :max_seq_length]
    return input_ids, input_mask.astype(np.int32), segment_ids
