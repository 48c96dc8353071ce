"""Decode JSON files of beambert to typed values: manifests, records, configurations.

The schema of a file is a dataclass or TypedDict; msgspec decodes and validates every value. Invalid content raises a
`JsonError` with the field and its value, to which the caller adds the file and the remedy.
"""

import collections
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from beambert.common.local_files import read_small

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
# A step of a path of msgspec: a field, or an index or key in brackets; a key of an object is "..." in the path.
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


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
    content = content.removeprefix(_BOM)
    if not content.strip():
        raise JsonError("the file is empty")
    try:
        value = msgspec.json.decode(content, type=schema)
        # msgspec uses the last of several fields with the same name.
        json.loads(content, object_pairs_hook=_unique)
    except JsonError:
        raise
    except msgspec.ValidationError as error:
        raise JsonError(_problem(str(error), _untyped(content))) from error
    except UnicodeDecodeError as error:
        raise JsonError("the file is not UTF-8") from error
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply") from error
    except ValueError as error:
        raise JsonError(f"not valid JSON ({str(error).removeprefix('JSON is malformed: ')})") from error
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
    header = decode(content, _Header)
    if header != _Header(name, version):
        raise FormatError(
            f"has format {shown(header.format)} {shown(header.format_version)}, but this version of beambert reads "
            f"{shown(name)} {version}"
        )


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
        raise JsonError(_problem(str(error), value, prefix)) from error
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
    return shorten(json.dumps(value, ensure_ascii=False))


def shorten(text: str, length: int = _SHOWN_CHARACTERS) -> str:
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


def _problem(message: str, value: Any, prefix: str = "") -> str:
    """Return the message of a msgspec error with the path and the value of the field."""
    reason, _, path = message.partition(" - at `")
    path = path.removesuffix("`")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", reason):
        return f"{_field(prefix, f'{path}.{missing[1]}')} is missing"
    name = shorten(_field(prefix, path), _SHOWN_PATH) or "the content"
    bad_value = _value_at(value, path)
    # The message has the type of the value, or all of an invalid name, where the value itself is shown.
    reason = re.sub(r", got `\w+`$|(?<=Invalid enum value) '.*'$", "", reason, flags=re.DOTALL)
    reason = shorten(reason.replace("`", ""), 2 * _SHOWN_PATH)
    if bad_value is _NOTHING or not reason.startswith(("Expected", "Invalid")):
        return f"{name}: {reason}"
    return f"{name} is {shown(bad_value)}: {reason[0].lower()}{reason[1:]}"


def _field(prefix: str, path: str) -> str:
    return f"{prefix}{path.removeprefix('$')}".removeprefix(".")


_NOTHING = object()


def _value_at(value: Any, path: str) -> Any:
    """Return the value at a path such as `$.parts[3].bytes`; `_NOTHING` at one with a key that it does not contain."""
    for name, index in _STEP.findall(path):
        try:
            value = value[name or int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return _NOTHING
    return value
