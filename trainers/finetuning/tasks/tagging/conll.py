"""CoNLL column files: a word a line with its tags in columns, a blank line after each sentence.

The layout of the shared task of CoNLL-2003 (Tjong Kim Sang and De Meulder): word, part of speech, chunk, entity.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np

from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from trainers.finetuning.tasks.utf8_files import read_text

DOCUMENT_MARK = "-DOCSTART-"
# What stands in the tag column of files whose tags are kept secret.
_PLACEHOLDERS = ("", "_", "-", "?")
_STEMS = {TRAIN: ("train",), DEV: ("dev", "valid", "validation", "devel"), TEST: ("test",)}
_SUFFIXES = (".txt", ".conll", ".conllu", ".tsv", ".iob2", ".bio")
_LANGUAGES = ("eng", "deu", "esp", "ned")
# Of the shared tasks: eng.train, eng.testa, eng.testb.
_SHARED_TASK_SUFFIXES = {TRAIN: "train", DEV: "testa", TEST: "testb"}
_BLANKS = " \t\r"
_RUN_OF_BLANKS = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns and options by which a file is read.

    Attributes:
        word_column: 0 for the first, -1 for the last.
        tag_column: the same way.
        comment_prefix: a line that starts so is no word; "" for none, but for .conllu, which has "#".
    """

    word_column: int = 0
    tag_column: int = -1
    comment_prefix: str = ""


@dataclasses.dataclass(frozen=True)
class ConllFile:
    """Sentences of a file. W words, N sentences.

    Attributes:
        path: of the file.
        separator: between columns, a tab or a blank.
        rows: the line of each word, as it stands in the file.
        words: W.
        tags: W, or None if the file has none.
        line_numbers: int64 [W], from 1.
        sentence_splits: int64 [N + 1]; sentence i has the words from `sentence_splits[i]` to `sentence_splits[i + 1]`.
        document_marks: of each -DOCSTART- line, the number of the sentence before which it stands, and the line.
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
        """Return the first sentences; all for None."""
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
        """Return the same file with no column taken for tags."""
        return dataclasses.replace(self, tags=None)

    def document_splits(self) -> np.ndarray:
        """Return the first sentence of each document and at the end N, int64; one document if none is marked."""
        return np.unique([0, *(sentence for sentence, _ in self.document_marks), len(self)]).astype(np.int64)

    def where(self, word: int) -> str:
        """Return file and line of a word, for messages."""
        return f"{self.path.name}, line {self.line_numbers[word]}"


def find(directory: Path, split: str) -> Path:
    """Return the file of a split.

    Raises:
        TaskDataError: there is none, or more than one.
    """
    names = [stem + suffix for stem in _STEMS[split] for suffix in _SUFFIXES]
    names += [f"{language}.{_SHARED_TASK_SUFFIXES[split]}" for language in _LANGUAGES]
    present = [name for name in names if (directory / name).is_file()]
    if not present:
        raise TaskDataError(
            f"{directory} has no file of the split {split}; put the sentences there as {names[0]} "
            f"(or {', '.join(stem + '.*' for stem in _STEMS[split])}, *.{_SHARED_TASK_SUFFIXES[split]}), "
            "a word and its tag a line"
        )
    if len(present) > 1:
        raise TaskDataError(f"{directory} has {' and '.join(present)}, both for the split {split}; leave one there")
    return directory / present[0]


def read(path: Path, layout: Layout, tags_needed: bool = True) -> ConllFile:
    """Read a file.

    Columns are separated by single tabs where every row has one, else by blanks and tabs in any number.

    Args:
        path: of the file, UTF-8 with or without a mark at its beginning, lines ending in any way.
        layout: where words and tags stand.
        tags_needed: False for a file that may come without tags: its rows have no such column, or all of them have
            nothing, "_", "-" or "?" in it.

    Raises:
        TaskDataError: it cannot be read, has no sentence, or a row lacks a column.
    """
    comment = layout.comment_prefix or ("#" if path.suffix == ".conllu" else "")
    rows: list[str] = []
    line_numbers: list[int] = []
    splits = [0]
    marks: list[tuple[int, str]] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        row = line.rstrip("\r")
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
        raise TaskDataError(f"{path} has no sentence; a row has a word and its tag, a blank line ends a sentence")

    separator = "\t" if all("\t" in row for row in rows) else " "
    table = [columns(row, separator) for row in rows]
    width = len(table[0])
    for values, number, row in zip(table, line_numbers, rows, strict=True):
        if len(values) != width:
            hint = '; if it is a comment, give --comment_prefix "#"' if "#" in (row[0], rows[0][0]) else ""
            raise TaskDataError(
                f"{path.name}, line {number}: {_count(len(values))} where line {line_numbers[0]} has {width}: "
                f"{row[:60]!r}{hint or '; mend it, or put a blank line where a sentence ends'}"
            )
    word_column = _place(layout.word_column, width)
    tag_column = _place(layout.tag_column, width)
    if word_column is None:
        raise TaskDataError(f"{path.name}, line {line_numbers[0]}: {_count(width)}, --word_column asks for more")
    tags = None
    if tag_column is not None and tag_column != word_column:
        tags = tuple(values[tag_column] for values in table)
        if not tags_needed and tags[0] in _PLACEHOLDERS and len(set(tags)) == 1:
            tags = None
    elif tags_needed:
        raise TaskDataError(
            f"{path.name}, line {line_numbers[0]}: {_count(width)} and no tag: {rows[0][:60]!r}; a row has a word and "
            "its tag (--word_column, --tag_column)"
        )
    return ConllFile(
        path=path,
        separator=separator,
        rows=tuple(rows),
        words=tuple(values[word_column] for values in table),
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
    """Return the file's text with a last column of predicted tags, as the evaluation script conlleval reads it.

    Where the tags do not stand last they are written once more before the predictions. A -DOCSTART- line is filled up
    with "O"; comments are left out.

    Args:
        file: of W words.
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
    """Return a column counted from the first, None if there is no such column."""
    return column % width if -width <= column < width else None


def _count(width: int) -> str:
    return "1 column" if width == 1 else f"{width} columns"
