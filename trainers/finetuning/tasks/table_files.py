"""Read CSV, TSV, JSON lines and Parquet files as columns, with errors that name file and row."""

import contextlib
import csv
import dataclasses
import difflib
import io
import json
import re
from pathlib import Path
from typing import Any

from beambert.common.formatting import replace_surrogates
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from beambert.trainers.finetuning.tasks.utf8_files import read_text

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
# Names of a split's file, without suffix.
FILE_NAMES = {TRAIN: ("train",), DEV: ("dev", "validation", "valid", "val"), TEST: ("test",)}
_ASKED_BY = {TRAIN: "--do_train", DEV: "--do_eval", TEST: "--do_predict"}
# The maximum of a C long on every platform.
_LARGEST_FIELD = 2**31 - 1
# A quoted field, with doubled quotation marks inside.
_ENCLOSED_FIELD = re.compile(r'(?<![^\t\r\n])"[^"]*+(?:""[^"]*+)*+"(?![^\t\r\n])')
_TAB_OR_LINE_END = frozenset("\t\r\n")


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a file, at least one.

    Attributes:
        path: path of the file.
        columns: cells by column: text in CSV and TSV, any JSON value in JSON lines, the Python value of the column's
            type in Parquet. None where a row has no such field.
        lines: first line of each row; None for Parquet.
    """

    path: Path
    columns: dict[str, list[Any]]
    lines: list[int] | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def where(self, row: int) -> str:
        """Return the location of a row for messages, such as "train.csv, row 1 (line 2)"."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"{self.path.name}, row {row + 1}{line}"

    def cells(self, name: str, remedy: str) -> list[Any]:
        """Return a column.

        Args:
            name: name of the column.
            remedy: last part of the error message.

        Raises:
            TaskDataError: there is no such column; the message lists the columns and suggests the nearest name.
        """
        if name not in self.columns:
            near = difflib.get_close_matches(name, self.columns, n=1, cutoff=0.5)
            mean = f"did you mean {near[0]!r}? " if near else ""
            columns = ", ".join(repr(column) for column in self.columns)
            raise TaskDataError(f"{self.path} has no column {name!r} (columns: {columns}): {mean}{remedy}")
        return self.columns[name]

    def texts(self, name: str, remedy: str) -> list[str]:
        """Return a column of texts that can be encoded as UTF-8.

        Raises:
            TaskDataError: there is no such column, or a cell is not text.
        """
        cells = self.cells(name, remedy)
        for row, cell in enumerate(cells):
            if not isinstance(cell, str):
                content = "nothing" if cell is None else f"{cell!r}"
                raise TaskDataError(f"{self.where(row)}: {name!r} is {content}, not text: fix or remove the row")
        return [replace_surrogates(cell) for cell in cells]


def find_split(directory: Path, split: str) -> Path | None:
    """Return the path of a split's table in a directory; None where it is missing.

    Args:
        directory: directory of the tables.
        split: key of `FILE_NAMES`.

    Raises:
        TaskDataError: the directory has several tables of the split, or only one with a suffix that
            is not in `SUFFIXES`.
    """
    files = sorted(path for path in directory.iterdir() if path.stem in FILE_NAMES[split] and path.is_file())
    tables = [path for path in files if path.suffix.lower() in SUFFIXES]
    if len(tables) > 1:
        raise TaskDataError(
            f"{directory} has {' and '.join(path.name for path in tables)} for the same split: keep one of them"
        )
    if files and not tables:
        check_suffix(files[0])
    return tables[0] if tables else None


def read_split(directory: Path, split: str) -> Table:
    """Read the table of `find_split`.

    Raises:
        TaskDataError: the table is missing, cannot be read or has no rows.
    """
    path = find_split(directory, split)
    if path is None:
        names = " or ".join(FILE_NAMES[split])
        raise TaskDataError(
            f"{directory} has no {names} file with suffix {', '.join(SUFFIXES)}: add it, or omit {_ASKED_BY[split]}"
        )
    return read_table(path)


def check_suffix(path: Path) -> str:
    """Return the suffix of a file, which determines its format.

    Raises:
        TaskDataError: the suffix is not in `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise TaskDataError(f"unknown suffix of {path}: use one of {', '.join(SUFFIXES)}")
    return path.suffix.lower()


def read_table(path: Path) -> Table:
    """Read a file by its suffix; text is UTF-8, with or without a byte order mark.

    - .csv: a header and rows, with quoting as in RFC 4180. Semicolons or tabs are the separator where the header
      contains them and no comma.
    - .tsv: a header and rows. Where every quotation mark is part of a field quoted as in CSV, the file is quoted
      (pandas and spreadsheets); otherwise quotation marks are ordinary characters (GLUE). They are ordinary characters
      too where quoted fields would contain tabs or line ends, and every line has the number of fields of the header.
    - .jsonl: one object per line.
    - .parquet: one row per row.

    Blank lines are skipped, and so are columns without a name, such as the index of pandas.

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
        raise TaskDataError(f"{path} has no rows: add examples")
    return table


def _read_separated(path: Path, suffix: str) -> Table:
    text = read_text(path)
    if suffix == ".csv":
        header = text.lstrip("\r\n").partition("\n")[0]
        delimiter = next((mark for mark in ",;\t" if mark in header), ",")
        return _parse_separated(path, text, delimiter, csv.QUOTE_MINIMAL)
    if '"' not in text or '"' in _ENCLOSED_FIELD.sub("", text):
        return _parse_separated(path, text, "\t", csv.QUOTE_NONE)
    if _may_be_unquoted(text):
        with contextlib.suppress(TaskDataError):
            return _parse_separated(path, text, "\t", csv.QUOTE_NONE)
    try:
        return _parse_separated(path, text, "\t", csv.QUOTE_MINIMAL)
    except TaskDataError:
        # Two fields such as `"Yes` and `no"` look like one quoted field with a tab inside.
        return _parse_separated(path, text, "\t", csv.QUOTE_NONE)


def _may_be_unquoted(text: str) -> bool:
    """Return whether the enclosed fields of a TSV file may be texts whose quotes close in another field or row.

    A quoted header shows that the file is quoted. With a single column, the number of fields shows nothing.
    """
    header = text.lstrip("\r\n").replace("\r", "\n").partition("\n")[0]
    if '"' in header or "\t" not in header:
        return False
    return any(not _TAB_OR_LINE_END.isdisjoint(field[0]) for field in _ENCLOSED_FIELD.finditer(text))


def _parse_separated(path: Path, text: str, delimiter: str, quoting: int) -> Table:
    csv.field_size_limit(_LARGEST_FIELD)
    # Strict: an unclosed quotation mark is an error, and does not include the rest of the file.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
    names: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    first_line = 1
    try:
        for row in reader:
            if row and names is None:
                names = [name.strip() for name in row]
                _check_unique(path, names, "rename one of them in the first line")
            elif row and names is not None:
                if len(row) != len(names):
                    remedy = (
                        "quote fields that contain the separator"
                        if quoting != csv.QUOTE_NONE
                        else "separate columns by single tabs, with none inside a field"
                    )
                    raise TaskDataError(
                        f"{path.name}, row {len(rows) + 1} (line {first_line}): {len(row)} fields, while the header "
                        f"has {len(names)}: {remedy}"
                    )
                rows.append(row)
                lines.append(first_line)
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise TaskDataError(
            f"{path.name}, row {len(rows) + 1} (line {first_line}): misplaced quotation mark ({error}): close the "
            "quotes of the field, and double those inside it"
        ) from error
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names or []) if name}
    return Table(path, columns, lines)


def _check_unique(path: Path, names: list[str], remedy: str) -> None:
    twice = [name for index, name in enumerate(names) if name and name in names[:index]]
    if twice:
        raise TaskDataError(f"{path} has two columns {twice[0]!r}: {remedy}")


def _read_jsonl(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    # Not splitlines, which splits at characters that JSON allows in strings.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path.name}, row {len(rows) + 1} (line {number})"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TaskDataError(f"{where}: invalid JSON ({error}): fix the line") from error
        if not isinstance(row, dict):
            raise TaskDataError(f'{where}: not an object: write a line such as {{"text": "...", "label": "..."}}')
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
            f"{path} is a Parquet file, and the package pyarrow is not installed: pip install 'beambert[data]'"
        ) from error
    try:
        table = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read()
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, ArithmeticError) as error:
        raise TaskDataError(f"{path} is not a valid Parquet file ({_reason(error)}): write it again") from error
    _check_unique(path, table.column_names, "rename one of them")
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = table.column(name).to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError, KeyError, ArithmeticError) as error:
            raise TaskDataError(
                f"{path}, column {name!r}: the values cannot be read ({_reason(error)}): correct or remove the column"
            ) from error
    return Table(path, columns, None)


def _reason(error: Exception) -> str:
    """Return the first line of a message; the type of the error where it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)
