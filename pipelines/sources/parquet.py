"""Parquet files: a document a row, its text in a column (`--text_field`, "text").

Its title and language are taken from the columns "title" and "language" if they are there.
"""

import io
from collections.abc import Iterator

import pyarrow
import pyarrow.parquet

from pipelines.documents import Document
from pipelines.sources.files import ReadOptions, SourceError, stated_language

_BATCH_ROWS = 256


def _holds_text(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def read_documents(stream: io.BufferedIOBase, path: str, options: ReadOptions) -> Iterator[Document]:
    """Yields a document a row: every line of a text is a paragraph; a list of texts is a list of sentences.

    Row groups are read one after the other, a few hundred rows at a time.

    Raises:
        SourceError: not a whole Parquet file, or no column of that name with text in it.
    """
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(stream, mode="r"))
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(
            f"{path} is not a whole Parquet file ({reason}); fetch it again, or name the true --input_format"
        ) from error
    kind = schema.field(options.text_field).type if options.text_field in schema.names else pyarrow.null()
    listed = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if not _holds_text(kind.value_type if listed else kind):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise SourceError(
            f"{path}: no text in column {options.text_field!r} (found: {columns}); name the column with --text_field"
        )
    language_field = options.language_field or "language"
    if options.language_field and language_field not in schema.names:
        raise SourceError(
            f"{path}: no column {language_field!r} (found: {', '.join(schema.names)}); name it with --language_field"
        )
    others = [
        name
        for name in ("title", language_field)
        if name != options.text_field and name in schema.names and _holds_text(schema.field(name).type)
    ]
    try:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[options.text_field, *others]):
            for row in batch.to_pylist():
                text = row[options.text_field]
                lines = text if listed else (text or "").splitlines()
                paragraphs = [line for line in lines or [] if line]
                title = row["title"] or "" if "title" in others else ""
                language = stated_language(row[language_field], options, path) if language_field in others else ""
                yield Document(paragraphs, title=title, source=path, segmented=listed, language=language)
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(
            f"{path} is damaged ({str(error).splitlines()[0]}); fetch it again or leave it out of --input"
        ) from error
