"""Read Parquet files: one document per row, with its text in the column `--text_field` ("text").

Title and language are in the columns "title" and "language", if they exist.
"""

import io
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.parquet

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import (
    BROKEN_RECORD,
    NULL_TEXT,
    FieldReader,
    source_id,
    stated_language,
)
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.formats.lines import invalid_byte

# Rows in memory at once. A file can repeat a long text with a few bytes a row.
_BATCH_ROWS = 16


def _is_text(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())


def _is_list(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return any(
        is_list(kind)
        for is_list in (
            types.is_list,
            types.is_large_list,
            types.is_fixed_size_list,
            types.is_list_view,
            types.is_large_list_view,
        )
    )


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


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yield one document per row. Each line of a text is a paragraph; a list of strings is a list of sentences.

    A row with text that is not UTF-8 is a bad record. A row with a null text is a rejected document that never stops
    the job, because the type of the column was checked. Row groups are read in order, a few hundred rows at a time.

    Raises:
        SourceError: The file is not a complete Parquet file, has no text column of that name, has two columns of a name
            that is read, or contains text that is not UTF-8 and `on_bad_record` is "stop".
    """
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(stream, mode="r"), page_checksum_verification=True)
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(
            f"{path} is not a complete Parquet file ({reason}); download it again, or set the correct --input_format"
        ) from error
    language_field = options.language_field or "language"
    for name in filter(None, (options.text_field, "title", language_field, options.id_field)):
        if schema.names.count(name) > 1:
            raise SourceError(
                f"{path}: column {name!r} occurs twice or more (columns: {', '.join(schema.names)}); rename or remove "
                "all but one"
            )
    kind = schema.field(options.text_field).type if options.text_field in schema.names else pyarrow.null()
    listed = _is_list(kind)
    if not _is_text(kind.value_type if listed else kind):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise SourceError(
            f"{path}: column {options.text_field!r} is missing or not text (columns: {columns}); set the column with "
            "--text_field"
        )
    if options.id_field and options.id_field not in schema.names:
        raise SourceError(
            f"{path}: column {options.id_field!r} is missing (columns: {', '.join(schema.names)}); "
            "set the column with --id_field, or leave the flag out"
        )
    if options.language_field and language_field not in schema.names:
        raise SourceError(
            f"{path}: column {language_field!r} is missing (columns: {', '.join(schema.names)}); set the column with "
            "--language_field, or leave the flag out"
        )
    metadata_columns = [
        name
        for name in ("title", language_field)
        if name != options.text_field and name in schema.names and _is_text(schema.field(name).type)
    ]
    columns_read = sorted({options.text_field, *metadata_columns, *filter(None, [options.id_field])})
    fields = FieldReader(path, options)
    try:
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=columns_read)
        for number, row in enumerate(itertools.chain.from_iterable(map(_rows, batches)), start=1):
            if isinstance(row, UnicodeDecodeError):
                shown = row.object.decode("utf-8", "replace")
                remedy = "rewrite the column as UTF-8"
                problem = f"{invalid_byte(row, 'utf-8')} in a text column"
                yield fields.bad(BROKEN_RECORD, problem, f"row {number}", number, shown, remedy=remedy)
                continue
            text = row[options.text_field]
            identifier = source_id(row[options.id_field]) if options.id_field else ""
            lines = text if listed else (text or "").splitlines()
            paragraphs = [line for line in lines or [] if line]
            title = row["title"] or "" if "title" in metadata_columns else ""
            language = (
                stated_language(row[language_field], options, f"{path}, row {number}")
                if language_field in metadata_columns
                else ""
            )
            yield Document(
                paragraphs,
                title=title,
                source=path,
                segmented=listed,
                rejected="" if text is not None else NULL_TEXT,
                language=language,
                line=number,
                source_id=identifier,
            )
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{path} is corrupt ({str(error).splitlines()[0]}); download it again or leave it out of --input"
        ) from error


PARQUET = InputFormat(
    name="parquet",
    read=read_documents,
    recognize=lambda _stem, head: head.startswith(b"PAR1"),
    suffixes=(".parquet",),
    has_fields=True,
    has_language=True,
    reports_other_kinds=True,
)
