"""Read lines of texts and pairs, for commands that run a model on many texts."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from beambert.bert_model.checkpoints.path_contents import contents_of
from beambert.trainers.errors import TrainingError

PAIR_SEPARATOR = " ||| "
# Number of lines that are sorted by length together.
LINES_A_CHUNK = 4096
# At the end of a line, where an empty text follows, editors remove the last space.
_SEPARATOR = re.compile(r"(?<![^ ])\|\|\|(?![^ ])")


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


def split_texts(line: str) -> list[str]:
    """Split a line at every " ||| ", also at the start and the end of the line, where a text is empty."""
    first, *others = _SEPARATOR.split(line.strip())
    # Only the spaces of the separators are removed: offsets of answers count those of the texts.
    texts = [first, *(text.removeprefix(" ") for text in others)]
    return [*(text.removesuffix(" ") for text in texts[:-1]), texts[-1]]


def split_pair(line: str) -> tuple[str, str | None]:
    """Split a line at the last " ||| "; return the text and the second text, None where it is not a pair.

    The second text of "a ||| " is empty. extract_features.py of the released code reads the text "a |||".
    """
    *firsts, second = split_texts(line)
    return (PAIR_SEPARATOR.join(firsts), second) if firsts else (second, None)
