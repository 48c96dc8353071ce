"""CSV, TSV, JSON lines and Parquet files as columns of cells, with errors that name file and row."""

import csv
import dataclasses
import difflib
import io
import json
import re
from pathlib import Path
from typing import Any

from beambert_common.unicode_text import replace_surrogates
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from trainers.finetuning.tasks.utf8_files import read_text

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
# What the file of a split may be called, before its ending.
FILE_NAMES = {TRAIN: ("train",), DEV: ("dev", "validation", "valid", "val"), TEST: ("test",)}
_ASKED_BY = {TRAIN: "--do_train", DEV: "--do_eval", TEST: "--do_predict"}
# A C long has no more on every machine.
_LARGEST_FIELD = 2**31 - 1
# A whole field in quotation marks, those inside it doubled.
_ENCLOSED_FIELD = re.compile(r'(?<![^\t\r\n])"[^"]*+(?:""[^"]*+)*+"(?![^\t\r\n])')


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a file, at least one.

    Attributes:
        path: the file.
        columns: of each column its cells, one a row: text in CSV and TSV, any JSON value in JSON lines, in Parquet
            what Python has for a value of the column's type. None where a row has no such field.
        lines: the line that each row begins in; None for Parquet, which has no lines.
    """

    path: Path
    columns: dict[str, list[Any]]
    lines: list[int] | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def where(self, row: int) -> str:
        """Return the name of a row for messages: "train.csv, row 1 (line 2)"."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"{self.path.name}, row {row + 1}{line}"

    def cells(self, name: str, remedy: str) -> list[Any]:
        """Return a column; `remedy` ends the message where there is none of that name.

        Raises:
            TaskDataError: there is none; the message has those that there are, and the nearest.
        """
        if name not in self.columns:
            near = difflib.get_close_matches(name, self.columns, n=1, cutoff=0.5)
            mean = f"did you mean {near[0]!r}? " if near else ""
            columns = ", ".join(repr(column) for column in self.columns)
            raise TaskDataError(f"{self.path} has no column {name!r} (found: {columns}); {mean}{remedy}")
        return self.columns[name]

    def texts(self, name: str, remedy: str) -> list[str]:
        """Return a column of texts that can be written as UTF-8.

        Raises:
            TaskDataError: there is no such column, or a cell of it is no text.
        """
        cells = self.cells(name, remedy)
        for row, cell in enumerate(cells):
            if not isinstance(cell, str):
                content = "nothing" if cell is None else f"{cell!r}"
                raise TaskDataError(f"{self.where(row)}: {name!r} is {content}, not text; mend the row or leave it out")
        return [replace_surrogates(cell) for cell in cells]


def find_split(directory: Path, split: str) -> Path | None:
    """Return the path of a split's table in a directory; None where it is missing.

    Args:
        directory: to look in.
        split: a key of `FILE_NAMES`.

    Raises:
        TaskDataError: no such directory; several tables of the split; none but a file with an ending that is none of
            `SUFFIXES`.
    """
    if not directory.is_dir():
        raise TaskDataError(
            f"--data_dir {directory} is no directory; name the one that holds train, dev and test files"
        )
    files = sorted(path for path in directory.iterdir() if path.stem in FILE_NAMES[split] and path.is_file())
    tables = [path for path in files if path.suffix.lower() in SUFFIXES]
    if len(tables) > 1:
        raise TaskDataError(
            f"{directory} has {' and '.join(path.name for path in tables)} for one split; leave one of them there"
        )
    if files and not tables:
        check_suffix(files[0])
    return tables[0] if tables else None


def read_split(directory: Path, split: str) -> Table:
    """Read the table that `find_split` finds.

    Raises:
        TaskDataError: there is none, or it cannot be read or has no rows.
    """
    path = find_split(directory, split)
    if path is None:
        names = " or ".join(FILE_NAMES[split])
        raise TaskDataError(
            f"{directory} has no file called {names} with one of the endings {', '.join(SUFFIXES)}; put it there, or "
            f"leave {_ASKED_BY[split]} out"
        )
    return read_table(path)


def check_suffix(path: Path) -> str:
    """Return the suffix that decides how a file is read.

    Raises:
        TaskDataError: it is none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise TaskDataError(f"{path} ends in none of {', '.join(SUFFIXES)}; save it as one of these")
    return path.suffix.lower()


def read_table(path: Path) -> Table:
    """Read a file by the rules of its suffix; text is UTF-8, with or without a byte order mark.

    - .csv: a header and rows; fields with commas, line ends or quotation marks in quotation marks, those inside
      doubled (RFC 4180). A header with no comma but semicolons or tabs says that these stand between fields.
    - .tsv: a header and rows. If every quotation mark belongs to a field that is written as in CSV, so are all (pandas
      and spreadsheets write it); otherwise quotation marks are characters like others (GLUE writes it).
    - .jsonl: an object a line.
    - .parquet: a row a row.

    Blank lines are no rows; columns without a name (the index that pandas writes) are left out.

    Raises:
        TaskDataError: the file cannot be read, or has no rows.
    """
    suffix = check_suffix(path)
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix == ".jsonl":
        table = _read_jsonl(path)
    else:
        table = _read_separated(path, suffix)
    if not table.columns or not len(table):
        raise TaskDataError(f"{path} has no rows; put examples into it")
    return table


def _read_separated(path: Path, suffix: str) -> Table:
    text = read_text(path)
    if suffix == ".csv":
        header = text.lstrip("\r\n").partition("\n")[0]
        delimiter = next((mark for mark in ",;\t" if mark in header), ",")
        return _parse_separated(path, text, delimiter, csv.QUOTE_MINIMAL)
    if '"' in text and '"' not in _ENCLOSED_FIELD.sub("", text):
        try:
            return _parse_separated(path, text, "\t", csv.QUOTE_MINIMAL)
        except TaskDataError:
            # Such as `"Yes` and `no"` in two fields: by chance like one field with a tab inside.
            pass
    return _parse_separated(path, text, "\t", csv.QUOTE_NONE)


def _parse_separated(path: Path, text: str, delimiter: str, quoting: int) -> Table:
    csv.field_size_limit(_LARGEST_FIELD)
    # Strict: a quotation mark that is never closed is an error and does not swallow the rest of the file.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
    names: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    first_line = 1
    try:
        for row in reader:
            if row and names is None:
                names = _column_names(path, row)
            elif row and names is not None:
                if len(row) != len(names):
                    remedy = (
                        "quote fields that hold the separator"
                        if quoting != csv.QUOTE_NONE
                        else "put a tab between columns and none inside"
                    )
                    raise TaskDataError(
                        f"{path.name}, row {len(rows) + 1} (line {first_line}): {len(row)} fields where the header has "
                        f"{len(names)}; {remedy}"
                    )
                rows.append(row)
                lines.append(first_line)
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise TaskDataError(
            f"{path.name}, row {len(rows) + 1} (line {first_line}): a quotation mark out of place ({error}); close the "
            "field's quotes, and double those inside it"
        ) from error
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names or []) if name}
    return Table(path, columns, lines)


def _column_names(path: Path, header: list[str]) -> list[str]:
    names = [name.strip() for name in header]
    twice = [name for index, name in enumerate(names) if name and name in names[:index]]
    if twice:
        raise TaskDataError(
            f"{path} has two columns {twice[0]!r}; the first line must give each column a name of its own"
        )
    return names


def _read_jsonl(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    # Not splitlines, which splits at characters that JSON allows inside a string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path.name}, row {len(rows) + 1} (line {number})"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TaskDataError(f"{where}: not valid JSON ({error}); mend the line") from error
        if not isinstance(row, dict):
            raise TaskDataError(f'{where}: not an object; write a line such as {{"text": "...", "label": "..."}}')
        rows.append(row)
        lines.append(number)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(path, {name: [row.get(name) for row in rows] for name in names}, lines)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise TaskDataError(
            f"{path} is a Parquet file, and package pyarrow is not installed; pip install 'beambert[data]'"
        ) from error
    try:
        table = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read()
        return Table(path, {name: table.column(name).to_pylist() for name in table.column_names}, None)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TaskDataError(f"{path} is not a whole Parquet file ({reason}); write it again") from error
