"""Read Parquet files: one document per row, with its text in the column `--text_field` ("text").

Title and language are in the columns "title" and "language", if they exist. Several workers read the row groups of a
large file.
"""

import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import BROKEN_RECORD, FieldReader
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import invalid_byte

# Rows in memory at once. A file can repeat a long text with a few bytes a row.
_BATCH_ROWS = 16


def _is_text(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())


def _is_list(kind: pyarrow.DataType) -> bool:
    # Only Arrow's five types of lists have this attribute.
    return hasattr(kind, "value_field")


def _rows(batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """Yield the rows of a batch, or the error of a row that is not valid UTF-8; only the conversion detects it."""
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        for number in range(batch.num_rows):
            try:
                yield batch.slice(number, 1).to_pylist()[0]
            except UnicodeDecodeError as error:
                yield error
        return
    yield from rows


def _find_type(kind: pyarrow.DataType, name: str) -> pyarrow.DataType | None:
    """Return the type of a field of a struct, or of a list of structs, as `find_field` finds it; None without one."""
    if _is_list(kind):
        item = _find_type(kind.value_type, name)
        return item and pyarrow.list_(item)
    if not pyarrow.types.is_struct(kind):
        return None
    if (index := kind.get_field_index(name)) >= 0:
        return kind.field(index).type
    outer, _, inner = name.partition(".")
    index = kind.get_field_index(outer)
    return _find_type(kind.field(index).type, inner) if inner and index >= 0 else None


def _columns(file: pyarrow.parquet.ParquetFile, path: str, options: ReadOptions) -> list[str]:
    """Return the columns to read, those of nested fields by their path.

    Raises:
        SourceError: A requested column is missing, the text column is not text, or two columns have a name that is
            read.
    """
    schema = file.schema_arrow
    language_field = options.language_field or "language"
    url = ["url"] if options.html_field else []
    names = [options.content_field, "title", language_field, options.id_field, *url, *options.kept_fields]
    names = list(dict.fromkeys(filter(None, names)))
    for name in names:
        if schema.names.count(name) > 1:
            raise SourceError(
                f"{path}: column {name!r} occurs twice or more (columns: {', '.join(schema.names)}); rename or remove "
                "all but one"
            )
    types = {name: kind for name in names if (kind := _find_type(pyarrow.struct(list(schema)), name))}
    text_type = types.get(options.content_field, pyarrow.null())
    if not _is_text(text_type.value_type if _is_list(text_type) else text_type):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        flag = "--html_field" if options.html_field else "--text_field"
        raise SourceError(
            f"{path}: column {options.content_field!r} is missing or not text (columns: {columns}); set the column "
            f"with {flag}"
        )
    flags = [("--id_field", options.id_field), ("--language_field", options.language_field)]
    for flag, name in [*flags, *(("--keep_fields", name) for name in options.kept_fields)]:
        if name and name not in types:
            raise SourceError(
                f"{path}: column {name!r} is missing (columns: {', '.join(schema.names)}); set the column with {flag}, "
                "or leave the flag out"
            )
    leaves = [f"{file.schema.column(number).path}." for number in range(len(file.schema))]
    # Of a list of structs, whose columns have other paths, all fields are read.
    return sorted(
        {name if any(leaf.startswith(f"{name}.") for leaf in leaves) else name.split(".")[0] for name in types}
    )


def _row_groups(file: pyarrow.parquet.ParquetFile, start: int, stop: int | None) -> Iterator[tuple[int, int]]:
    """Yield number and first row (from 1) of each row group whose first page is in a range of the file."""
    row = 1
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        offset = group.column(0).data_page_offset if group.num_columns else 0
        if start <= offset and (stop is None or offset < stop):
            yield number, row
        row += group.num_rows


def read_range(
    file: BinaryIO, path: str, options: ReadOptions, start: int = 0, stop: int | None = None
) -> Iterator[Document]:
    """Yield one document per row of the row groups that begin in a range of a file.

    Each line of a text is a paragraph; a list of strings is a list of sentences. A row with text that is not UTF-8 is a
    bad record. A row with a null text is a rejected document that never stops the job, because the type of the column
    was checked.

    Args:
        file: The file as stored.
        path: Its path.
        options: Options of reading.
        start, stop: Byte range; None is the end of the file. A row group is in the range with its first page.

    Raises:
        SourceError: The file is not a complete Parquet file, has no text column of that name, has two columns of a name
            that is read, or contains text that is not UTF-8 and `on_bad_record` is "stop".
    """
    try:
        parquet = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(file, mode="r"), page_checksum_verification=True)
        columns = _columns(parquet, path, options)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(
            f"{path} is not a complete Parquet file ({reason}); download it again, or set the correct --input_format"
        ) from error
    fields = FieldReader(path, options, checks_fields=False, has_schema=True)
    try:
        for group, first in _row_groups(parquet, start, stop):
            batches = parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], columns=columns)
            for number, row in enumerate(itertools.chain.from_iterable(map(_rows, batches)), start=first):
                if isinstance(row, UnicodeDecodeError):
                    shown = row.object.decode("utf-8", "replace")
                    remedy = "rewrite the column as UTF-8"
                    problem = f"{invalid_byte(row, 'utf-8')} in a text column"
                    yield fields.bad(BROKEN_RECORD, problem, f"row {number}", number, shown, remedy=remedy)
                else:
                    yield fields.document(row, f"row {number}", number)
    except SourceError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(
            f"{path} is corrupt ({str(error).splitlines()[0]}); download it again or leave it out of --input"
        ) from error


# A row group of usual size is larger.
PARQUET = InputFormat(
    name="parquet",
    read=read_range,
    read_range=read_range,
    range_bytes={".parquet": 16 << 20},
    recognize=lambda _stem, head: head.startswith(b"PAR1"),
    suffixes=(".parquet",),
    has_fields=True,
    has_language=True,
    reports_other_kinds=True,
)
