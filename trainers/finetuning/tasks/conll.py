"""CoNLL column files: one word per line with its tags in columns, and a blank line after each sentence.

The layout of the shared task of CoNLL-2003 (Tjong Kim Sang and De Meulder): word, part of speech, chunk, entity.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from beambert.trainers.finetuning.tasks.utf8_files import read_text

DOCUMENT_MARK = "-DOCSTART-"
# Placeholders in the tag column of files without tags.
_PLACEHOLDERS = ("", "_", "-", "?")
_STEMS = {TRAIN: ("train",), DEV: ("dev", "valid", "validation", "devel"), TEST: ("test",)}
_SUFFIXES = (".txt", ".conll", ".conllu", ".tsv", ".iob2", ".bio")
_LANGUAGES = ("eng", "deu", "esp", "ned")
# Suffixes of the shared task's files: eng.train, eng.testa, eng.testb.
_SHARED_TASK_SUFFIXES = {TRAIN: "train", DEV: "testa", TEST: "testb"}
_BLANKS = " \t"
_RUN_OF_BLANKS = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class ConllFile:
    """The sentences of a file. W words, N sentences.

    Attributes:
        path: path of the file.
        separator: separator of columns, a tab or a space.
        rows: W lines, as in the file.
        words: W words.
        tags: W tags, or None where the file has none.
        line_numbers: int64 [W], from 1.
        sentence_splits: int64 [N + 1]; sentence i has the words `sentence_splits[i]:sentence_splits[i + 1]`.
        document_marks: for each -DOCSTART- line, the index of the sentence after it, and the line.
    """

    path: Path
    separator: str
    rows: tuple[str, ...]
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    line_numbers: np.ndarray
    sentence_splits: np.ndarray
    document_marks: tuple[tuple[int, str], ...]

    def __len__(self) -> int:
        """Return N."""
        return len(self.sentence_splits) - 1

    def first(self, count: int | None) -> "ConllFile":
        """Return the first `count` sentences; all for None."""
        if count is None or count >= len(self):
            return self
        words = int(self.sentence_splits[count])
        return dataclasses.replace(
            self,
            rows=self.rows[:words],
            words=self.words[:words],
            tags=None if self.tags is None else self.tags[:words],
            line_numbers=self.line_numbers[:words],
            sentence_splits=self.sentence_splits[: count + 1],
            document_marks=tuple(mark for mark in self.document_marks if mark[0] < count),
        )

    def without_tags(self) -> "ConllFile":
        """Return the same file without tags."""
        return dataclasses.replace(self, tags=None)

    def document_splits(self) -> np.ndarray:
        """Return the first sentence of each document, followed by N, int64; one document where none is marked."""
        return np.unique([0, *(sentence for sentence, _ in self.document_marks), len(self)]).astype(np.int64)

    def where(self, word: int) -> str:
        """Return the file and line of a word, for messages."""
        return f"{self.path.name}, line {self.line_numbers[word]}"


def find(directory: Path, split: str) -> Path:
    """Return the path of a split's file.

    Raises:
        TaskDataError: no file matches, or several do.
    """
    names = [stem + suffix for stem in _STEMS[split] for suffix in _SUFFIXES]
    names += [f"{language}.{_SHARED_TASK_SUFFIXES[split]}" for language in _LANGUAGES]
    present = [name for name in names if (directory / name).is_file()]
    if not present:
        raise TaskDataError(
            f"{directory} has no file for the {split} split: add {names[0]} "
            f"(or {', '.join(stem + '.*' for stem in _STEMS[split])}, *.{_SHARED_TASK_SUFFIXES[split]}) "
            "with a word and its tag per line"
        )
    if len(present) > 1:
        raise TaskDataError(f"{directory} has {' and '.join(present)} for the {split} split: keep one of them")
    return directory / present[0]


def read(
    path: Path, *, word_column: int = 0, tag_column: int = -1, comment_prefix: str = "", tags_needed: bool = True
) -> ConllFile:
    """Read a file.

    Columns are separated by single tabs where every row has a tab, else by runs of spaces and tabs.

    Args:
        path: path of the file: UTF-8 with or without byte order mark; lines end with \\n, \\r\\n or \\r.
        word_column: index of the word column; 0 is the first, -1 the last.
        tag_column: index of the tag column.
        comment_prefix: prefix of comment lines; "" for none, except in .conllu files, where it is "#".
        tags_needed: False for a file that may have no tags: the column is missing, or every row has an empty tag, "_",
            "-" or "?".

    Raises:
        TaskDataError: the file cannot be read or has no sentence, or a row lacks a column.
    """
    comment = comment_prefix or ("#" if path.suffix == ".conllu" else "")
    rows: list[str] = []
    line_numbers: list[int] = []
    splits = [0]
    marks: list[tuple[int, str]] = []
    # Several carriage returns before a line feed are one line end.
    lines = (row for line in read_text(path).split("\n") for row in line.rstrip("\r").split("\r"))
    for number, row in enumerate(lines, start=1):
        is_mark = row.startswith(DOCUMENT_MARK)
        if (is_mark or not row.strip(_BLANKS)) and len(rows) > splits[-1]:
            splits.append(len(rows))
        if is_mark:
            marks.append((len(splits) - 1, row))
        elif row.strip(_BLANKS) and not (comment and row.startswith(comment)):
            rows.append(row)
            line_numbers.append(number)
    if len(rows) > splits[-1]:
        splits.append(len(rows))
    if not rows:
        raise TaskDataError(
            f"{path} has no sentence: each line needs a word and its tag, and a blank line ends a sentence"
        )

    separator = "\t" if all("\t" in row for row in rows) else " "
    table = [columns(row, separator) for row in rows]
    width = len(table[0])
    for values, number, row in zip(table, line_numbers, rows, strict=True):
        if len(values) != width:
            hint = ': for a comment use --comment_prefix "#"' if "#" in (row[0], rows[0][0]) else ""
            raise TaskDataError(
                f"{path.name}, line {number}: {_count(len(values))}, while line {line_numbers[0]} has {width}: "
                f"{row[:60]!r}{hint or ': fix the line, or end sentences with a blank line'}"
            )
    word_index, tag_index = _place(word_column, width), _place(tag_column, width)
    if word_index is None:
        raise TaskDataError(f"{path.name}, line {line_numbers[0]}: {_count(width)}, fewer than --word_column requires")
    tags = None
    if tag_index is not None and tag_index != word_index:
        tags = tuple(values[tag_index] for values in table)
        if not tags_needed and tags[0] in _PLACEHOLDERS and len(set(tags)) == 1:
            tags = None
    elif tags_needed:
        raise TaskDataError(
            f"{path.name}, line {line_numbers[0]}: {_count(width)} and no tag: {rows[0][:60]!r}; each line needs a "
            "word and its tag (--word_column, --tag_column)"
        )
    return ConllFile(
        path=path,
        separator=separator,
        rows=tuple(rows),
        words=tuple(values[word_index] for values in table),
        tags=tags,
        line_numbers=np.array(line_numbers, np.int64),
        sentence_splits=np.array(splits, np.int64),
        document_marks=tuple(marks),
    )


def columns(row: str, separator: str) -> list[str]:
    """Return the columns of a row; see `read`."""
    if separator == "\t":
        return [value.strip(_BLANKS) for value in row.split("\t")]
    return _RUN_OF_BLANKS.split(row.strip(_BLANKS))


def with_predictions(file: ConllFile, predictions: list[str]) -> str:
    """Return the file's text with predicted tags as the last column, the input of the evaluation script conlleval.

    Where the tags are not the last column, they are repeated before the predictions. A -DOCSTART- line is padded with
    "O"; comments are omitted.

    Args:
        file: file with W words.
        predictions: W tags.
    """
    lines: list[str] = []
    marks = list(file.document_marks)
    first = columns(file.rows[0], file.separator)
    repeated = file.tags is not None and any(
        columns(row, file.separator)[-1] != tag for row, tag in zip(file.rows, file.tags, strict=True)
    )
    width = len(first) + repeated
    for sentence in range(len(file)):
        while marks and marks[0][0] <= sentence:
            mark = columns(marks.pop(0)[1], file.separator)
            lines += [file.separator.join([*mark[:width], *["O"] * (width - len(mark)), "O"]), ""]
        for word in range(file.sentence_splits[sentence], file.sentence_splits[sentence + 1]):
            gold = [file.tags[word]] if repeated and file.tags is not None else []
            lines.append(file.separator.join([*columns(file.rows[word], file.separator), *gold, predictions[word]]))
        lines.append("")
    return "\n".join(lines) + "\n"


def _place(column: int, width: int) -> int | None:
    """Return the non-negative index of a column; None where it does not exist."""
    return column % width if -width <= column < width else None


def _count(width: int) -> str:
    return "1 column" if width == 1 else f"{width} columns"
