"""Convert rows of another schema to documents."""

import dataclasses
import decimal
import math
import numbers
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.utils.timestamp import Timestamp

from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.fields import FieldReader, find_field
from beambert.pipelines.formats.input_format import ReadOptions

_NAME = "RowsToDocuments"
_ARGUMENTS = {"text": "text", "id": "id", "language": "language", "skip": "on_bad_record='skip'"}


@beam.typehints.with_output_types(Document)
class RowsToDocuments(beam.PTransform):
    """Convert rows, dictionaries or Beam rows, to documents.

    A name such as "article.body" selects the field "body" within "article", unless the row has a field of the complete
    name. "sections.text" is the list of the texts of a list of sections. Dates and timestamps become text in ISO 8601.

    Example:
    >>> import apache_beam as beam
    >>> from beambert.pipelines.transforms import RowsToDocuments
    >>> with beam.Pipeline() as pipeline:
    ...     rows = pipeline | beam.Create([{"key": 7, "article": {"body": "A text.", "title": "A title"}}])
    ...     documents = rows | RowsToDocuments(text="article.body", title="article.title", id="key")
    ...     _ = documents | beam.Map(lambda document: print(document.paragraphs, document.title, document.source_id))
    ['A text.'] A title 7

    Args:
        text: Field with the text, of which each line is a paragraph, or with the list of its sentences.
        title: Field with the title, if rows have it.
        id: Field with the ID, a string, an integer or a date, which `WriteCorpus` records for rejected documents; ""
            for none.
        language: Field with the language code; "" for "language", if rows have it.
        weight: Field with the sampling weight, a number of at least 0; "" for a weight of 1.
        on_bad_record: Action for a row without text: "stop" the pipeline, or "skip" the row, which becomes a rejected
            document.

    Raises:
        SourceError: A name or an action is invalid. When the pipeline runs: a row is bad and `on_bad_record` is "stop",
            or the first 100 rows of a worker lack a requested field.
    """

    def __init__(
        self,
        text: str = "text",
        title: str = "title",
        id: str = "",
        language: str = "",
        weight: str = "",
        on_bad_record: Literal["stop", "skip"] = "stop",
    ) -> None:
        super().__init__()
        for option, name in {"text": text, "title": title, "id": id, "language": language, "weight": weight}.items():
            if not isinstance(name, str) or (option == "text" and not name):
                raise SourceError(f"invalid {option} {name!r} of {_NAME}: must be the name of a field")
        if on_bad_record not in ("stop", "skip"):
            raise SourceError(f"invalid on_bad_record {on_bad_record!r} of {_NAME}: must be 'stop' or 'skip'")
        self._read = _ReadRow(
            ReadOptions(text_field=text, id_field=id, language_field=language, on_bad_record=on_bad_record),
            title,
            weight,
        )

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        """Return the documents."""
        return rows | beam.ParDo(self._read)


class _ReadRow(beam.DoFn):
    _READ = Metrics.counter("beambert", "documents_read")

    def __init__(self, options: ReadOptions, title_field: str, weight_field: str) -> None:
        self._options, self._title_field, self._weight_field = options, title_field, weight_field

    def setup(self) -> None:
        """Start to check the first rows of a worker for the requested fields."""
        self._fields = FieldReader(_NAME, self._options, title_field=self._title_field, remedies=_ARGUMENTS)

    def process(self, row: Any) -> Iterator[Document]:
        """Yield the document of a row."""
        record = _to_values(row)
        shown = reprlib.repr(record)
        document = self._fields.document(record, f"row {shown}", 0, shown)
        self._READ.inc()
        weight = self._weight(record, shown) if self._weight_field and not document.rejected else 1.0
        yield dataclasses.replace(document, source="", weight=weight)

    def _weight(self, record: object, shown: str) -> float:
        value = find_field(record, self._weight_field)
        is_number = isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise SourceError(
                f"{_NAME}, row {shown}: field {self._weight_field!r} is missing, or not a number of at least 0; set "
                "the field of the sampling weights with weight, or leave it out"
            )
        return float(value)


def _to_values(row: Any) -> Any:
    """Return a row or a value in it as dictionaries, lists and plain values."""
    if isinstance(row, Timestamp):
        return row.to_utc_datetime(has_tz=True)
    if hasattr(row, "_asdict"):
        row = row._asdict()
    if isinstance(row, Mapping):
        return {name: _to_values(value) for name, value in row.items()}
    return [_to_values(value) for value in row] if isinstance(row, list | tuple) else row
