"""Convert records with fields (JSON, CSV, Parquet) to documents, and handle bad records.

A bad record stops the job (`--on_bad_record stop`), or is skipped, counted and listed (`skip`).
"""

import re
from typing import Any

from beambert.common.unicode_text import replace_surrogates
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions

# Rules by which records are rejected; counted in corpus.json and listed in rejected/*.jsonl.
NULL_TEXT = "null_text"
MISSING_TEXT = "missing_text"
NOT_TEXT = "not_text"
BROKEN_RECORD = "broken_record"
BAD_RECORDS = (NULL_TEXT, MISSING_TEXT, NOT_TEXT, BROKEN_RECORD)

_SNIPPET_CHARACTERS = 200
_ID_CHARACTERS = 200
_MAX_NAMES = 20
# Records without --id_field or --language_field after which the flag counts as mistyped.
_MAX_RECORDS_WITHOUT_FIELD = 100
_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")
_REMEDY = "skip such records with --on_bad_record skip"


def language_code(value: object) -> str:
    """Return the value of a language field if it is a code such as "en" or "pt-BR", else ""."""
    return value if isinstance(value, str) and _LANGUAGE_CODE.fullmatch(value) else ""


def stated_language(value: object, options: ReadOptions, location: str) -> str:
    """Return the language code in a field of a document, or "".

    Args:
        value: Value of the field.
        options: Options of reading. An explicit `language_field` must contain language codes.
        location: File and line, for messages.

    Raises:
        SourceError: `language_field` is given, and the value is not a language code.
    """
    code = language_code(value)
    if options.language_field and not code and value not in (None, ""):
        raise SourceError(
            f"{location}: field {options.language_field!r} is {str(value)[:40]!r}, not a language code such as en or "
            "pt-BR; set the field of the codes with --language_field"
        )
    return code


def source_id(value: object) -> str:
    """Return the value of `--id_field` as text if it is a string or an integer, else ""."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return replace_surrogates(str(value))[:_ID_CHARACTERS]


def type_name(value: object) -> str:
    """Return the JSON type of a value with an article, such as "a number", or "null"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


class FieldReader:
    """Convert the records of one file to documents.

    Args:
        path: Path of the file, for messages.
        options: Names of the fields, and the action for bad records.
        checks_fields: Whether to check that the first records of the file have the requested fields; False for the
            later ranges of a file.
    """

    def __init__(self, path: str, options: ReadOptions, checks_fields: bool = True) -> None:
        self._path = path
        self._options = options
        self._records = 0
        flags = {"--id_field": options.id_field, "--language_field": options.language_field} if checks_fields else {}
        # Requested fields that no record had so far, by flag.
        self._unseen = {flag: name for flag, name in flags.items() if name}
        self._names: list[str] = []

    def document(self, record: object, location: str, number: int, raw: str = "") -> Document:
        """Return the document of a record, or a rejected document for a bad record.

        Args:
            record: The parsed record.
            location: Its position for messages, such as "line 3".
            number: Number of its line, row or item.
            raw: The record as written, for the list of rejected records.

        Raises:
            SourceError: The record is bad and `on_bad_record` is "stop", or no record has the field of `--id_field` or
                `--language_field`.
        """
        if not isinstance(record, dict):
            return self.bad(BROKEN_RECORD, f"is {type_name(record)}, not an object", location, number, raw)
        self._check_requested_fields(record)
        field, id_field = self._options.text_field, self._options.id_field
        identifier = source_id(record.get(id_field)) if id_field else ""
        if field not in record:
            problem = f"has no field {field!r} (fields: {self._listed(list(record))})"
            return self.bad(MISSING_TEXT, problem, location, number, raw, identifier, "set the field with --text_field")
        text = record[field]
        if text is None:
            return self.bad(NULL_TEXT, f"field {field!r} is null", location, number, raw, identifier)
        if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
            paragraphs = [replace_surrogates(sentence) for sentence in text if sentence.strip()]
        elif isinstance(text, str):
            paragraphs = replace_surrogates(text).splitlines()
        else:
            problem = f"field {field!r} is {type_name(text)}"
            if isinstance(text, list):
                problem += f" that contains {next(type_name(item) for item in text if not isinstance(item, str))}"
            return self.bad(NOT_TEXT, problem, location, number, raw, identifier)
        title = record.get("title")
        return Document(
            paragraphs,
            title=replace_surrogates(title) if isinstance(title, str) else "",
            source=self._path,
            segmented=isinstance(text, list),
            language=stated_language(
                record.get(self._options.language_field or "language"), self._options, f"{self._path}, {location}"
            ),
            line=number,
            source_id=identifier,
        )

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
            raise SourceError(f"{self._path}, {location}{separator}{problem}; {remedy}, or {_REMEDY}")
        snippet = replace_surrogates(raw[:_SNIPPET_CHARACTERS])
        return Document(
            [snippet] if snippet else [], source=self._path, rejected=reason, line=number, source_id=identifier
        )

    @property
    def is_checking(self) -> bool:
        """Return whether no record so far had some requested field."""
        return bool(self._unseen)

    def finish(self) -> None:
        """Raise SourceError if the file has records, but none of them has a requested field."""
        for flag, name in self._unseen.items() if self._records else ():
            raise SourceError(
                f"{self._path}: no record has the field {name!r} (fields: {self._listed(self._names)}); set the field "
                f"with {flag}, or leave the flag out"
            )

    def _check_requested_fields(self, record: dict[str, Any]) -> None:
        if not self._unseen:
            return
        self._records += 1
        self._names = self._names or list(record)
        self._unseen = {flag: name for flag, name in self._unseen.items() if name not in record}
        if self._records == _MAX_RECORDS_WITHOUT_FIELD:
            self.finish()

    @staticmethod
    def _listed(names: list[str]) -> str:
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return (", ".join(sorted(names)[:_MAX_NAMES]) or "none") + more
