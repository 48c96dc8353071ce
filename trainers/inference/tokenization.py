"""Lines of text as rows of model inputs, for the commands that run a model on many texts."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bert_model.checkpoints.path_contents import contents_of
from trainers.errors import TrainingError
from trainers.inference.model_loading import padded

PAIR_SEPARATOR = " ||| "
# Lines that are sorted by length together.
LINES_A_CHUNK = 4096
# Lengths are rounded up to a multiple of this, so that few shapes are met.
LENGTH_MULTIPLE = 8


def open_texts(input_file: str) -> BinaryIO:
    """Open the file of --input_file, or standard input for "-".

    Raises:
        TrainingError: it is missing or a directory; the message says what is there.
    """
    if input_file == "-":
        return sys.stdin.buffer
    path = Path(input_file)
    if path.is_dir() or not path.exists():
        raise TrainingError(f"--input_file {path} {contents_of(path)}; give a text file with one text a line")
    return path.open("rb")


class TextLines:
    """The lines of a file of bytes, decoded.

    Attributes:
        bytes_read: so far.
        damaged: lines so far with bytes that are not UTF-8, which become U+FFFD and are dropped by the tokenizer.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes_read = 0
        self.damaged = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.bytes_read += len(line)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                self.damaged += 1
                yield line.decode("utf-8", errors="replace")


def split_pair(line: str) -> tuple[str, str | None]:
    """Return a stripped line and, if it is a pair, the second text, split at the last " ||| "."""
    first, separator, second = line.strip().rpartition(PAIR_SEPARATOR)
    return (first, second) if separator else (second, None)


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Return batches of places of similar length, so that little is padding; the short ones first."""
    order = np.argsort(lengths, kind="stable").tolist()
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def model_inputs(
    rows: Sequence[np.ndarray], segments: Sequence[np.ndarray], pad_id: int, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return input_ids, input_mask and segment_ids, int32 [B, S], of rows int32 [S_i], S_i <= max_seq_length."""
    input_ids = padded(rows, pad_id, LENGTH_MULTIPLE)[:, :max_seq_length]  # [B, S]
    input_mask = np.arange(input_ids.shape[1]) < np.array([[len(row)] for row in rows])
    segment_ids = padded(segments, 0, LENGTH_MULTIPLE)[:, :max_seq_length]
    return input_ids, input_mask.astype(np.int32), segment_ids
