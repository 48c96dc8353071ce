"""Convert records with fields (JSON, CSV, Parquet, rows of a pipeline) to documents, and handle bad records.

A bad record stops the job (`--on_bad_record stop`), or is skipped, counted and listed (`skip`).
"""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

from beambert.common.formatting import replace_surrogates
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.html import read_page
from beambert.pipelines.formats.input_format import ReadOptions

# Rules by which records are rejected; counted in corpus.json and listed in rejected/*.jsonl.
NULL_TEXT = "null_text"
MISSING_TEXT = "missing_text"
NOT_TEXT = "not_text"
BROKEN_RECORD = "broken_record"
BAD_RECORDS = (NULL_TEXT, MISSING_TEXT, NOT_TEXT, BROKEN_RECORD)
# Missing data between the pages of a dump.
TRUNCATED = "truncated"

_SNIPPET_CHARACTERS = 200
_ID_CHARACTERS = 200
_MAX_NAMES = 20
# Records without --id_field or --language_field after which the flag counts as mistyped.
_MAX_RECORDS_WITHOUT_FIELD = 100
_KEEP_FLAG, _HTML_FLAG = "--keep_fields", "--html_field"
_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")
_FLAGS = {
    "text": "--text_field",
    "id": "--id_field",
    "language": "--language_field",
    "skip": "--on_bad_record skip",
}
# Value of a field that a record does not have.
MISSING = object()


def find_field(record: object, name: str) -> Any:
    """Return the value of a field of a record, or `MISSING`.

    Args:
        record: A parsed record, or a value within one.
        name: Name of the field. "article.body" is the field "body" within "article", unless the record has a field of
            the complete name. If "article" is a list, the result is the list of the values of its items. A field within
            null is null.
    """
    if isinstance(record, list):
        values = [find_field(item, name) for item in record]
        if values and all(value is MISSING for value in values):
            return MISSING
        return [None if value is MISSING else value for value in values]
    if not isinstance(record, dict):
        return None if record is None else MISSING
    if name in record:
        return record[name]
    outer, _, inner = name.partition(".")
    return find_field(record[outer], inner) if inner and outer in record else MISSING


def _field(record: object, name: str) -> Any:
    """Return the value of a field that a record may lack, then None."""
    value = find_field(record, name)
    return None if value is MISSING else value


def _as_text(value: object) -> str:
    """Return a string as it is, a date with or without time in ISO 8601, and "" for any other value."""
    text = value.isoformat() if isinstance(value, datetime.date) else value
    return replace_surrogates(text) if isinstance(text, str) else ""


def _plain_text(value: object) -> str:
    """Return a string as it is, a date in ISO 8601, and any other value as JSON."""
    is_text = isinstance(value, str | datetime.date)
    return _as_text(value) if is_text else replace_surrogates(json.dumps(value, ensure_ascii=False, default=str))


def language_code(value: object) -> str:
    """Return the value of a language field if it is a code such as "en" or "pt-BR", else ""."""
    return value if isinstance(value, str) and _LANGUAGE_CODE.fullmatch(value) else ""


def source_id(value: object) -> str:
    """Return the value of `--id_field` as text if it is a string, an integer or a date, else ""."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return _as_text(str(value) if is_integer else value)[:_ID_CHARACTERS]


_TYPE_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


def type_name(value: object) -> str:
    """Return the JSON type of a value with an article, such as "a number", or "null"."""
    return _TYPE_NAMES.get(type(value), "an object")


class FieldReader:
    """Convert the records of one file, or of a collection, to documents.

    Args:
        path: Path of the file, or name of the collection, for messages.
        options: Names of the fields, and the action for bad records.
        title_field: Name of the field with the title.
        checks_fields: Whether to check that the first records of the file have the requested fields; False for the
            later ranges of a file.
        has_schema: Whether the file has a schema, in which null is the value of a row without text: no such row stops
            the job, and null in a list of sentences is no sentence.
        remedies: What messages name: the options of the fields, and the action "skip".
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        *,
        title_field: str = "title",
        checks_fields: bool = True,
        has_schema: bool = False,
        remedies: Mapping[str, str] = _FLAGS,
    ) -> None:
        self._path = path
        self._options = options
        self._title_field = title_field
        self._language_field = options.language_field or "language"
        self._has_schema = has_schema
        self._remedies = remedies
        self._records = 0
        requested = [(remedies["id"], options.id_field), (remedies["language"], options.language_field)]
        requested += [(_KEEP_FLAG, name) for name in options.kept_fields]
        # Requested fields that no record had so far, with their flags.
        self._unseen = [(flag, name) for flag, name in requested if name and checks_fields]
        self._names: list[str] = []

    def document(self, record: object, location: str, number: int, raw: str = "") -> Document:
        """Return the document of a record, or a rejected document for a bad record.

        Args:
            record: The parsed record.
            location: Its position for messages, such as "line 3".
            number: Number of its line, row or item.
            raw: The record as written, for the list of rejected records.

        Raises:
            SourceError: The record is bad and `on_bad_record` is "stop", its language is not a code, or no record has
                the field of `--id_field` or `--language_field`.
        """
        if not isinstance(record, dict):
            return self.bad(BROKEN_RECORD, f"is {type_name(record)}, not an object", location, number, raw)
        self._check_requested_fields(record)
        field, id_field = self._options.content_field, self._options.id_field
        identifier = source_id(_field(record, id_field)) if id_field else ""
        text = find_field(record, field)
        if text is MISSING:
            problem = f"has no field {field!r} (fields: {self._listed(list(record))})"
            flag = _HTML_FLAG if self._options.html_field else self._remedies["text"]
            remedy = f"set the field with {flag}"
            return self.bad(MISSING_TEXT, problem, location, number, raw, identifier, remedy)
        if text is None:
            if self._has_schema:
                return self._rejected(NULL_TEXT, number, raw, identifier)
            return self.bad(NULL_TEXT, f"field {field!r} is null", location, number, raw, identifier)
        if self._options.html_field:
            if isinstance(text, str):
                return self._page(text, record, location, number, identifier)
            return self.bad(NOT_TEXT, f"field {field!r} is {type_name(text)}", location, number, raw, identifier)
        if isinstance(text, list) and self._has_schema:
            text = [sentence for sentence in text if sentence is not None]
        if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
            paragraphs = [replace_surrogates(sentence) for sentence in text if sentence.strip()]
        elif isinstance(text, str):
            paragraphs = replace_surrogates(text).splitlines()
        else:
            problem = f"field {field!r} is {type_name(text)}"
            if isinstance(text, list):
                problem += f" that contains {next(type_name(item) for item in text if not isinstance(item, str))}"
            return self.bad(NOT_TEXT, problem, location, number, raw, identifier)
        return Document(
            paragraphs=paragraphs,
            title=_as_text(_field(record, self._title_field)),
            source=self._path,
            segmented=isinstance(text, list),
            language=self._stated_language(record, location),
            line=number,
            source_id=identifier,
            metadata=self._kept(record),
        )

    def _page(self, text: str, record: dict[str, Any], location: str, number: int, identifier: str) -> Document:
        """Return the document of a record with a web page; title, language and URL of the record precede the page's."""
        page = read_page(replace_surrogates(text))
        url = _as_text(_field(record, "url"))
        return Document(
            paragraphs=page.paragraphs,
            title=_as_text(_field(record, self._title_field)) or page.title,
            source=self._path,
            rejected=page.rejected,
            language=self._stated_language(record, location) or page.language,
            line=number,
            source_id=identifier,
            metadata={**page.metadata, **({"url": url} if url else {}), **self._kept(record)},
        )

    def _kept(self, record: dict[str, Any]) -> dict[str, str]:
        """Return the fields of --keep_fields that a record has, as text; values that are not plain are JSON."""
        values = {name: _field(record, name) for name in self._options.kept_fields}
        return {name: _plain_text(value) for name, value in values.items() if value is not None}

    def _stated_language(self, record: dict[str, Any], location: str) -> str:
        """Return the language code of a record, or "".

        Raises:
            SourceError: A field is requested, and its value is not a language code.
        """
        value = _field(record, self._language_field)
        code = language_code(value)
        if self._options.language_field and not code and value not in (None, ""):
            raise SourceError(
                f"{self._path}, {location}: field {self._language_field!r} is {str(value)[:40]!r}, not a language code "
                f"such as en or pt-BR; set the field of the codes with {self._remedies['language']}"
            )
        return code

    def bad(
        self,
        reason: str,
        problem: str,
        location: str,
        number: int,
        raw: str,
        identifier: str = "",
        remedy: str = "fix the record",
    ) -> Document:
        """Return a rejected document for a bad record.

        Raises:
            SourceError: `on_bad_record` is "stop".
        """
        if self._options.on_bad_record == "stop":
            separator = " " if problem.startswith(("has", "is")) else ": "
            raise SourceError(
                f"{self._path}, {location}{separator}{problem}; {remedy}, or skip such records with "
                f"{self._remedies['skip']}"
            )
        return self._rejected(reason, number, raw, identifier)

    def _rejected(self, reason: str, number: int, raw: str, identifier: str) -> Document:
        snippet = replace_surrogates(raw[:_SNIPPET_CHARACTERS])
        return Document(
            paragraphs=[snippet] if snippet else [],
            source=self._path,
            rejected=reason,
            line=number,
            source_id=identifier,
        )

    @property
    def is_checking(self) -> bool:
        """Return whether no record so far had some requested field."""
        return bool(self._unseen)

    def finish(self) -> None:
        """Raise SourceError if the file has records, but none of them has a requested field."""
        for flag, name in self._unseen if self._records else ():
            raise SourceError(
                f"{self._path}: no record has the field {name!r} (fields: {self._listed(self._names)}); set the field "
                f"with {flag}, or leave the flag out"
            )

    def _check_requested_fields(self, record: dict[str, Any]) -> None:
        if not self._unseen:
            return
        self._records += 1
        self._names = self._names or list(record)
        self._unseen = [(flag, name) for flag, name in self._unseen if find_field(record, name) is MISSING]
        if self._records == _MAX_RECORDS_WITHOUT_FIELD:
            self.finish()

    @staticmethod
    def _listed(names: list[str]) -> str:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return (", ".join(sorted(names)[:_MAX_NAMES]) or "none") + more
