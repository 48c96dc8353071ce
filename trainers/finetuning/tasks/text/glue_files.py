"""Tab-separated files of GLUE, XNLI and their sources: one row per line, without quoting.

Quotation marks are ordinary text. A byte order mark and carriage returns before newlines are removed.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.utf8_files import read_text


@dataclasses.dataclass(frozen=True, slots=True)
class TsvRow:
    """A non-blank row.

    Attributes:
        where: location, such as "dev.tsv, row 17 (line 18)"; rows are counted from 1 after the header.
        fields: tab-separated fields.
    """

    where: str
    fields: list[str]


class TsvFile:
    """A file and the names of its columns.

    Args:
        path: path of the file.
        columns_without_header: column names of a file without header; None where a header is required. A first line
            that contains the last of these names is a header.

    Attributes:
        columns: names of the columns.

    Raises:
        TaskDataError: the file cannot be read, is not UTF-8, or is empty.
    """

    def __init__(self, path: Path, columns_without_header: Sequence[str] | None = None) -> None:
        self.path = path
        # Not splitlines: texts contain other Unicode line separators.
        self._lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
        first = next((line for line in self._lines if line.strip()), None)
        if first is None:
            raise TaskDataError(f"{path} is empty: use a file with rows")
        columns = [name.strip() for name in first.split("\t")]
        self._has_header = columns_without_header is None or columns_without_header[-1] in columns
        self.columns = columns if self._has_header else list(columns_without_header or ())

    def column(self, names: Sequence[str]) -> int | None:
        """Return the index of the column with one of these names; None otherwise."""
        return next((self.columns.index(name) for name in names if name in self.columns), None)

    def required_column(self, names: Sequence[str]) -> int:
        """Return the index of the column with one of these names.

        Raises:
            TaskDataError: there is no such column.
        """
        index = self.column(names)
        if index is None:
            shown = ", ".join(repr(column[:30]) for column in self.columns[:12])
            raise TaskDataError(
                f"{self.path} has no column {' or '.join(map(repr, names))}: the first line must contain tab-separated "
                f"column names, and has {shown}"
            )
        return index

    def rows(self) -> Iterator[TsvRow]:
        """Yield the rows after the header, without blank lines."""
        row = 0 if not self._has_header else -1
        for number, line in enumerate(self._lines, 1):
            if line.strip():
                row += 1
                if row:
                    yield TsvRow(f"{self.path.name}, row {row} (line {number})", line.split("\t"))

    def check_width(self, row: TsvRow) -> None:
        """Check the number of fields of a row. Raise TaskDataError where it differs from the number of columns."""
        if len(row.fields) != len(self.columns):
            raise TaskDataError(
                f"{row.where}: {len(row.fields)} fields, while the file has {len(self.columns)} columns "
                f"({', '.join(self.columns[:12])}): fix the tabs or line ends of the row"
            )
