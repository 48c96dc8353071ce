"""Decode JSON files of beambert to typed values: manifests, records, configurations.

The schema of a file is a dataclass or TypedDict; msgspec decodes and validates every value. Invalid content raises a
`JsonError` with the field and its value, to which the caller adds the file and the remedy.
"""

import collections
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from beambert.common.small_files import read_small

T = TypeVar("T")

MOST = 2**63 - 1
# A count, a size in bytes or an offset.
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Number = int | float
NonNegative = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
# A relative path of at most one directory and a file name.
RelativeName = Annotated[str, msgspec.Meta(pattern=r"^(?!\.\.?(/|$))[^/\\\x00]{1,200}(/(?!\.\.?$)[^/\\\x00]{1,200})?$")]

_BOM = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 40
_SHOWN_PATH = 120
_NAMES = {"int": "an integer", "float": "a number", "str": "a string", "bool": "true or false", "null": "null"}
_NAMES |= {"object": "an object", "array": "an array"}
_ANY_KEY = "[...]"
# More digits than Python converts.
_MOST_DIGITS = 4300
# Keys that are tried to find the one of an error; each takes time in proportion to the size of the file.
_MOST_TRIED_KEYS = 1000
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")


class JsonError(ValueError):
    """JSON does not match its schema; the message contains the field, its value and the requirement."""


@dataclasses.dataclass(frozen=True)
class _Header:
    """The fields that identify a manifest."""

    format: str = ""
    format_version: int = 0


def decode(content: bytes, schema: type[T]) -> T:
    """Decode a JSON text to a type; fields that the type does not have are ignored.

    Args:
        content: UTF-8 text, with or without a byte order mark.
        schema: a dataclass, TypedDict or any other type that msgspec decodes.

    Raises:
        JsonError: the text is not JSON, has a duplicate field, or does not match the type.
    """
    value = _decoded(content, schema)
    # msgspec uses the last of several fields with the same name.
    try:
        json.loads(content.removeprefix(_BOM), object_pairs_hook=_unique)
    except JsonError:
        raise
    except UnicodeDecodeError as error:
        raise JsonError("the file is not UTF-8") from error
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply") from error
    except ValueError as error:
        # Inside a field that the type does not have.
        raise JsonError(_bad_number(content) or f"not valid JSON ({error})") from error
    return value


class FormatError(JsonError):
    """A file has another format or version; the message contains both, and those that are read."""


def require_format(content: bytes, name: str, version: int) -> None:
    """Check the header of a manifest, before its other fields are decoded.

    Args:
        content: UTF-8 text of the file.
        name: format that the caller reads, such as "beambert-corpus".
        version: version that the caller reads.

    Raises:
        FormatError: the format or the version differs.
        JsonError: the text is not a JSON object.
    """
    header = _decoded(content, _Header)
    if header != _Header(name, version):
        raise FormatError(
            f"has format {shown(header.format)} {shown(header.format_version)}, but this version of beambert reads "
            f"{shown(name)} {version}"
        )


def _decoded(content: bytes, schema: type[T]) -> T:
    content = content.removeprefix(_BOM)
    if not content.strip():
        raise JsonError("the file is empty")
    try:
        return msgspec.json.decode(content, type=schema)
    except msgspec.ValidationError as error:
        raise JsonError(_bad_number(content) or _problem(str(error), _untyped(content), schema)) from error
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise JsonError(_bad_number(content) or f"not valid JSON ({reason})") from error
    except UnicodeDecodeError as error:
        raise JsonError("the file is not UTF-8") from error
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply") from error


def require(value: object, schema: Any, prefix: str = "") -> None:
    """Validate a JSON value against a type, without converting it.

    Args:
        value, schema, prefix: as for `convert`.

    Raises:
        JsonError: the value does not match.
    """
    convert(value, schema, prefix)


def convert(value: object, schema: type[T], prefix: str = "") -> T:
    """Convert a JSON value to a type.

    Args:
        value: result of `decode` for a field of type Any.
        schema: a dataclass, TypedDict or any other type that msgspec decodes.
        prefix: path of the value in its file, such as "counts".

    Raises:
        JsonError: the value does not match.
    """
    try:
        return msgspec.convert(value, schema)
    except msgspec.ValidationError as error:
        raise JsonError(_problem(str(error), value, schema, prefix)) from error
    except RecursionError as error:
        raise JsonError(f"{prefix or 'the JSON'} is nested too deeply") from error


def read(path: Path, schema: type[T]) -> T:
    """Return the content of a local JSON file.

    Raises:
        FileNotFoundError: the file does not exist.
        JsonError: the file cannot be read, is not JSON, or does not match the type.
    """
    try:
        content = read_small(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JsonError(f"the file cannot be read ({error.strerror or error})") from error
    return decode(content, schema)


def shown(value: object) -> str:
    """Return a JSON value for an error message: short, on one line."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return shortened(json.dumps(value, ensure_ascii=False))


def shortened(text: str, length: int = _SHOWN_CHARACTERS) -> str:
    """Return a text truncated to a length, followed by its full length where it is longer."""
    return text if len(text) <= length else f"{text[:length]}... ({len(text):,} characters)"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(name for name, count in collections.Counter(name for name, _ in pairs).items() if count > 1)
        raise JsonError(f"the field {shown(twice)} occurs twice")
    return content


def _untyped(content: bytes) -> Any:
    """Return the untyped value, to show its fields in errors; None where it cannot be decoded."""
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return None


class _BadNumber(str):
    """The text of a number that is not valid JSON or is out of range."""


def _number(text: str) -> float:
    value = float(text)
    return _BadNumber(text) if math.isinf(value) else value  # type: ignore[return-value]


def _bad_number(content: bytes) -> str | None:
    """Return an error for the first number that is NaN, infinite or too long; None otherwise."""
    try:
        value = json.loads(
            content,
            parse_int=lambda text: _BadNumber(text) if len(text) > _MOST_DIGITS else 0,
            parse_float=_number,
            parse_constant=_BadNumber,
        )
    except (ValueError, RecursionError):
        return None
    number = next(_bad_numbers(value, []), None)
    if number is None:
        return None
    steps, text = number
    name = shortened(_joined("", steps), _SHOWN_PATH) or "the content"
    return f"{name} must be a number in the range of JSON, not {shortened(text)}"


def _bad_numbers(value: Any, steps: list[Any]) -> Iterator[tuple[list[Any], str]]:
    if isinstance(value, _BadNumber):
        yield steps, value
    elif isinstance(value, list | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for step, item in items:
            if isinstance(item, _BadNumber | list | dict):
                yield from _bad_numbers(item, [*steps, step])


def _problem(message: str, value: Any, schema: Any, prefix: str = "") -> str:
    """Return the message of a msgspec error with the path and the value of the field."""
    reason, _, path = message.partition(" - at `")
    steps = _steps(path.removesuffix("`"))
    if None in steps and value is not None:
        steps = _with_keys(value, steps, schema, message)
    field = _joined(prefix, steps)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", reason):
        return f"{_joined(field, [missing[1]])} is missing"
    name = shortened(field, _SHOWN_PATH) or "the content"
    bad_value = _value_at(value, steps)
    but = "" if bad_value is _NOTHING else f", not {shown(bad_value)}"
    if expected := re.fullmatch(r"Expected `([^`]*)`, got `[^`]*`", reason):
        kinds = [_NAMES.get(kind, kind) for kind in expected[1].replace("int | float", "float").split(" | ")]
        return f"{name} must be {' or '.join(kinds)}{but}"
    if reason.startswith("Invalid enum value"):
        return f"{name} has the unknown value {shown(bad_value) if bad_value is not _NOTHING else reason.split()[-1]}"
    if limited := re.fullmatch(r"Expected `(int|float)` (>=|<=|>|<) (.*)", reason):
        words = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
        return f"{name} must be {words[limited[2]]} {limited[3]}{but}"
    if reason.startswith("Expected `str` matching regex"):
        return f"{name} has the invalid value {shown(bad_value)}" if bad_value is not _NOTHING else f"{name} is invalid"
    return f"{name}: {shortened(reason, 2 * _SHOWN_PATH)}"


_NOTHING = object()


def _steps(path: str) -> list[str | int | None]:
    """Return the keys and indices of a path such as `$.parts[3].bytes`; None for a key that it does not contain."""
    steps: list[str | int | None] = []
    for name, index, _ in _STEP.findall(path):
        steps.append(name or (int(index) if index else None))
    return steps


def _joined(prefix: str, steps: list[Any]) -> str:
    text = prefix
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = _ANY_KEY if step is None else str(step)
            text += name if not text or name == _ANY_KEY else f".{name}"
    return text


def _with_keys(value: Any, steps: list[str | int | None], schema: Any, message: str) -> list[str | int | None]:
    """Return the path of an error with its keys, found by validating each field separately."""
    named = list(steps)
    for number, step in enumerate(named):
        if step is not None:
            continue
        container = _value_at(value, named[:number])
        if not isinstance(container, dict):
            break
        for key in itertools.islice(container, _MOST_TRIED_KEYS):
            if _error_of(_with_only(value, named[:number], key), schema) == message:
                named[number] = key
                break
        else:
            break
    return named


def _error_of(value: Any, schema: Any) -> str:
    try:
        msgspec.convert(value, schema)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _with_only(value: Any, steps: list[Any], key: str) -> Any:
    """Return a value in which the object at a path has only one of its fields."""
    if not steps:
        return {key: value[key]}
    changed = _with_only(value[steps[0]], steps[1:], key)
    if isinstance(value, list):
        return [*value[: steps[0]], changed, *value[steps[0] + 1 :]]
    return {**value, steps[0]: changed}


def _value_at(value: Any, steps: list[Any]) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _NOTHING
    return value
