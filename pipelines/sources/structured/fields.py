"""Records with fields (JSON, CSV, Parquet) as documents, and the handling of bad ones.

A bad record ends the job (`--on_bad_record stop`), or is left out, counted and listed (`skip`).
"""

import re
from typing import Any

from beambert_common.unicode_text import replace_surrogates
from pipelines.errors import SourceError
from pipelines.sources.documents import Document
from pipelines.sources.files import ReadOptions

# Why a record is no document; counted in corpus.json, listed in rejected/*.jsonl.
NULL_TEXT = "null_text"
MISSING_TEXT = "missing_text"
NOT_TEXT = "not_text"
BROKEN_RECORD = "broken_record"
BAD_RECORDS = (NULL_TEXT, MISSING_TEXT, NOT_TEXT, BROKEN_RECORD)

_SNIPPET_CHARACTERS = 200
_ID_CHARACTERS = 200
_FIELDS_NAMED = 20
# Records looked at before --id_field or --language_field counts as mistyped.
_RECORDS_LOOKED_AT = 100
_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")
_REMEDY = "leave such records out with --on_bad_record skip"


def language_code(value: object) -> str:
    """Return a file's stated language of a document if it is a code such as "en" or "pt-BR"; else ""."""
    return value if isinstance(value, str) and _LANGUAGE_CODE.fullmatch(value) else ""


def stated_language(value: object, options: ReadOptions, place: str) -> str:
    """Return what a document's field states as its language, or "" where it states none.

    Args:
        value: of the field.
        options: how to read; a `language_field` that was asked for has to hold codes.
        place: file and line, for messages.

    Raises:
        SourceError: the field was asked for and holds something else than a code.
    """
    code = language_code(value)
    if options.language_field and not code and value not in (None, ""):
        raise SourceError(
            f"{place}: field {options.language_field!r} is {str(value)[:40]!r}, not a language code such as en or "
            "pt-BR; name the field of the codes with --language_field"
        )
    return code


def source_id(value: object) -> str:
    """Return the value of `--id_field` as text: a text or a whole number; "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return replace_surrogates(str(value))[:_ID_CHARACTERS]


def type_name(value: object) -> str:
    """Return what JSON calls a value, with its article: "a number", "null"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"


class FieldReader:
    """Convert the records of one file to documents.

    Args:
        path: the file, for messages.
        options: the fields' names, and what becomes of bad records.
    """

    def __init__(self, path: str, options: ReadOptions) -> None:
        self._path = path
        self._options = options
        self._records = 0
        flags = {"--id_field": options.id_field, "--language_field": options.language_field}
        # Fields that were asked for and that no record had so far, by their flags.
        self._unseen = {flag: name for flag, name in flags.items() if name}
        self._names: list[str] = []

    def document(self, record: object, place: str, number: int, raw: str = "") -> Document:
        """Return the document of one record, or the rejected one of a bad record.

        Args:
            record: parsed.
            place: for messages, such as "line 3".
            number: of the line, row or item.
            raw: the record as it is written, for the list of rejected ones.

        Raises:
            SourceError: the record is bad, and these stop the job; or no record has the field of `--id_field` or
                `--language_field`.
        """
        if not isinstance(record, dict):
            return self.bad(BROKEN_RECORD, f"is {type_name(record)}, not an object", place, number, raw)
        self._look_for_fields(record)
        field, identifier = self._options.text_field, source_id(record.get(self._options.id_field))
        if field not in record:
            problem = f"has no field {field!r}; its fields are {self._listed(list(record))}"
            return self.bad(MISSING_TEXT, problem, place, number, raw, identifier, "name the field with --text_field")
        text = record[field]
        if text is None:
            return self.bad(NULL_TEXT, f"field {field!r} is null", place, number, raw, identifier)
        if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
            paragraphs = [replace_surrogates(sentence) for sentence in text if sentence.strip()]
        elif isinstance(text, str):
            paragraphs = replace_surrogates(text).splitlines()
        else:
            problem = f"field {field!r} is {type_name(text)}"
            if isinstance(text, list):
                problem += f" that holds {next(type_name(item) for item in text if not isinstance(item, str))}"
            return self.bad(NOT_TEXT, problem, place, number, raw, identifier)
        title = record.get("title")
        return Document(
            paragraphs,
            title=replace_surrogates(title) if isinstance(title, str) else "",
            source=self._path,
            segmented=isinstance(text, list),
            language=stated_language(
                record.get(self._options.language_field or "language"), self._options, f"{self._path}, {place}"
            ),
            line=number,
            source_id=identifier,
        )

    def bad(
        self,
        reason: str,
        problem: str,
        place: str,
        number: int,
        raw: str,
        identifier: str = "",
        remedy: str = "fix the record",
    ) -> Document:
        """Return the rejected document that stands for a bad record.

        Raises:
            SourceError: bad records stop the job.
        """
        if self._options.on_bad_record == "stop":
            separator = " " if problem.startswith(("has", "is")) else ": "
            raise SourceError(f"{self._path}, {place}{separator}{problem}; {remedy}, or {_REMEDY}")
        snippet = replace_surrogates(raw[:_SNIPPET_CHARACTERS])
        return Document(
            [snippet] if snippet else [], source=self._path, rejected=reason, line=number, source_id=identifier
        )

    def finish(self) -> None:
        """Raise SourceError if the file had records and none of them a field that was asked for."""
        for flag, name in self._unseen.items() if self._records else ():
            raise SourceError(
                f"{self._path}: no record has the field {name!r} (found: {self._listed(self._names)}); name the field "
                f"with {flag}, or leave the flag out"
            )

    def _look_for_fields(self, record: dict[str, Any]) -> None:
        if not self._unseen:
            return
        self._records += 1
        self._names = self._names or list(record)
        self._unseen = {flag: name for flag, name in self._unseen.items() if name not in record}
        if self._records == _RECORDS_LOOKED_AT:
            self.finish()

    @staticmethod
    def _listed(names: list[str]) -> str:
        more = f" and {len(names) - _FIELDS_NAMED} more" if len(names) > _FIELDS_NAMED else ""
        return (", ".join(sorted(names)[:_FIELDS_NAMED]) or "none") + more
