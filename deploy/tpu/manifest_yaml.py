"""Write Kubernetes objects as YAML without a library: mappings, lists, strings, numbers and booleans."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Strings that YAML 1.1 and 1.2 read as strings without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*")
# Text of several lines that can be written as it is.
_LINES = re.compile(r"[!-~][ -~]*\n(?: *[!-~][ -~]*\n)+")
_NOT_STRINGS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def to_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as the documents of a YAML stream."""
    return "---\n".join("".join(f"{line}\n" for line in _block(document)) for document in documents)


def _block(value: Any) -> Iterator[str]:
    """Yield the lines of a mapping or a list that is not empty."""
    if isinstance(value, Mapping):
        for key, content in value.items():
            yield from _entry(f"{_scalar(key)}:", content)
    else:
        for content in value:
            yield from _item(content)


def _entry(key: str, content: Any) -> Iterator[str]:
    if isinstance(content, str) and _LINES.fullmatch(content):
        yield f"{key} |"
        yield from (f"  {line}" for line in content.splitlines())
    elif isinstance(content, Mapping | list) and content:
        yield key
        yield from (f"  {line}" for line in _block(content))
    else:
        yield f"{key} {_scalar(content)}"


def _item(content: Any) -> Iterator[str]:
    if isinstance(content, Mapping | list) and content:
        first, *rest = _block(content)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)
    else:
        yield f"- {_scalar(content)}"


def _scalar(value: Any) -> str:
    """Return a scalar or an empty collection."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_STRINGS:
        return value
    return f'"{"".join(map(_quoted, value))}"'


def _quoted(character: str) -> str:
    """Return a character of a string in double quotes; unlike JSON, YAML does not join surrogates."""
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
