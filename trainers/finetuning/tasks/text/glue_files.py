"""Tab-separated files as GLUE, XNLI and their sources have them: no quoting, a row a line.

A quotation mark is text like any other, a byte order mark at the start and carriage returns at the ends of lines are
not.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainers.errors import TaskDataError
from trainers.finetuning.tasks.utf8_files import read_text


@dataclasses.dataclass(frozen=True, slots=True)
class TsvRow:
    """A line with something on it.

    Attributes:
        where: such as "dev.tsv, row 17 (line 18)": rows are counted from 1 after the header, lines with it.
        fields: as many as there are tabs, and one more.
    """

    where: str
    fields: list[str]


class TsvFile:
    """A file with its header, or with the names of its columns where it has none.

    Args:
        path: the file.
        columns_without_header: the names of all columns of a file without header; None for a file that must have one.
            A file whose first line has the last of these names among its fields has a header all the same.

    Attributes:
        columns: names of the columns.

    Raises:
        TaskDataError: the file cannot be read, is not UTF-8, or has not a line.
    """

    def __init__(self, path: Path, columns_without_header: Sequence[str] | None = None) -> None:
        self.path = path
        # Not splitlines: other characters that end lines for Unicode stand inside texts.
        self._lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
        first = next((line for line in self._lines if line.strip()), None)
        if first is None:
            raise TaskDataError(f"{path} is empty; give a file with rows")
        columns = [name.strip() for name in first.split("\t")]
        self._has_header = columns_without_header is None or columns_without_header[-1] in columns
        self.columns = columns if self._has_header else list(columns_without_header or ())

    def place(self, names: Sequence[str]) -> int | None:
        """Return the place of the column with one of these names, None if there is none."""
        return next((self.columns.index(name) for name in names if name in self.columns), None)

    def needed_place(self, names: Sequence[str]) -> int:
        """Return the place of the column with one of these names, or raise.

        Raises:
            TaskDataError: there is none.
        """
        place = self.place(names)
        if place is None:
            shown = ", ".join(repr(column[:30]) for column in self.columns[:12])
            raise TaskDataError(
                f"{self.path} has no column {' or '.join(map(repr, names))}; its first line should name the columns "
                f"with tabs between, and has {shown}"
            )
        return place

    def rows(self) -> Iterator[TsvRow]:
        """Yield the rows after the header; lines of white space are skipped."""
        row = 0 if not self._has_header else -1
        for number, line in enumerate(self._lines, 1):
            if line.strip():
                row += 1
                if row:
                    yield TsvRow(f"{self.path.name}, row {row} (line {number})", line.split("\t"))

    def check_width(self, row: TsvRow) -> None:
        """Raise TaskDataError where a row has not as many fields as there are columns."""
        if len(row.fields) != len(self.columns):
            raise TaskDataError(
                f"{row.where}: {len(row.fields)} columns where the file has {len(self.columns)} "
                f"({', '.join(self.columns[:12])}); mend the row, a tab or a line end is missing or too many"
            )
