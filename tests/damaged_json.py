"""Corrupt JSON files for tests: one value changed, at every path, or the complete content replaced."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Texts that Python's json does not write; each replaces the string that is its key.
RAW = {
    "@digits": "9" * 5000,
    "@infinite": "1e999",
    "@nan": "NaN",
    "@nested": "[" * 100_000 + "]" * 100_000,
    "@long": json.dumps("x" * 100_000),
}
# Complete contents of a file.
FILES: dict[str, bytes] = {
    "empty": b"",
    "list": b"[]",
    "null": b"null",
    "string": b'"x"',
    "brackets": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "not UTF-8": b'{"format": "\xff\xfe"}',
    "UTF-16": '{"format": "x"}'.encode("utf-16"),
    "digits": b"9" * 5000,
    "noise": bytes(range(256)) * 4,
    "another object": b'{"a": 1}',
}

Path_ = tuple[str | int, ...]


def paths(value: Any, prefix: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield every path below a value, and the value there; of a list of objects, only the first object."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = value[:1]
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield (*prefix, step), item
        yield from paths(item, (*prefix, step))


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield values of other types than a value, and numbers out of range, each with its name."""
    if isinstance(value, bool):
        others: list[Any] = [None, "x", 1, [], {}]
    elif isinstance(value, int | float):
        others = [None, "x", True, [], {}, -1, *([1.5] if isinstance(value, int) else [])]
    elif isinstance(value, str):
        others = [None, 1, True, [], {}]
    elif isinstance(value, list):
        others = [None, "x", 1, {"a": 1}]
    elif isinstance(value, dict):
        others = [None, "x", 1, [], {"@": []}]
    else:
        others = [{"a": [1]}]
    yield from ((json.dumps(other), other) for other in others)
    yield from ((name, name) for name in RAW if name != "@long" or not isinstance(value, str))


def changed(content: Any, path: Path_, value: Any) -> bytes:
    """Return the text of a value with the value at a path replaced."""
    content = copy.deepcopy(content)
    _parent(content, path)[path[-1]] = value
    text = json.dumps(content, ensure_ascii=False)
    for name, raw in RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text.encode()


def without(content: Any, path: Path_) -> bytes:
    """Return the text of a value with the item at a path removed."""
    content = copy.deepcopy(content)
    del _parent(content, path)[path[-1]]
    return json.dumps(content, ensure_ascii=False).encode()


def twice(content: Any, path: Path_) -> bytes:
    """Return the text of a value in which the field at a path occurs twice."""
    content = copy.deepcopy(content)
    parent = _parent(content, path)
    parent["@twice"] = parent[path[-1]]
    return json.dumps(content, ensure_ascii=False).replace('"@twice"', json.dumps(path[-1])).encode()


def damages(content: Any) -> Iterator[tuple[str, Path_, bytes]]:
    """Yield every corrupt text of a file: the kind of change, its path and the text."""
    for path, value in paths(content):
        for name, other in changes(value):
            yield name, path, changed(content, path, other)
        if isinstance(path[-1], str):
            yield "missing", path, without(content, path)
            yield "twice", path, twice(content, path)


def _parent(content: Any, path: Path_) -> Any:
    for step in path[:-1]:
        content = content[step]
    return content


def write_damaged(path: Path, content: bytes) -> None:
    """Replace a file."""
    path.unlink()
    path.write_bytes(content)
