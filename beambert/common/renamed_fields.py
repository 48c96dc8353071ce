"""Renamed fields of JSON files: read files of older versions, and use the old names in messages.

A table such as {"parts": "shards", "parts.*.bucket": "partition"} maps the path of a field in the older version to its
new name; `*` matches every item of an array.
"""

import re
from collections.abc import Mapping
from typing import Any

from beambert.common.typed_json import JsonError

Names = Mapping[str, str]

_SEPARATORS = re.compile(r"(\[\d+\]|\.)")


def with_new_names(content: Any, names: Names) -> Any:
    """Return a copy of a JSON value with its fields renamed.

    Args:
        content: content of a file of the older version.
        names: renaming table of that version.

    Raises:
        JsonError: the value is nested too deeply.
    """
    try:
        return _renamed(content, names, "")
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply") from error


def _renamed(value: Any, names: Names, prefix: str) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names, f"{prefix}*.") for item in value]
    if not isinstance(value, dict):
        return value
    fields = {key: _renamed(item, names, f"{prefix}{key}.") for key, item in value.items()}
    kept = {key: item for key, item in fields.items() if prefix + key not in names}
    return kept | {names[prefix + key]: item for key, item in fields.items() if prefix + key in names}


def inverse(names: Names) -> dict[str, str]:
    """Return the inverse table, from new to old names."""
    return {_new_path(path, names): path.rpartition(".")[2] for path in names}


def _new_path(path: str, names: Names) -> str:
    steps = path.split(".")
    return ".".join(names.get(".".join(steps[: end + 1]), step) for end, step in enumerate(steps))


def with_old_names(message: str, names: Names) -> str:
    """Return the message of a JsonError, which starts with a path, with the old names in the path.

    Args:
        message: message about content of `with_new_names`.
        names: renaming table.
    """
    old_names = inverse(names)
    path, blank, rest = message.partition(" ")
    text = prefix = ""
    for step in _SEPARATORS.split(path):
        if _SEPARATORS.fullmatch(step):
            prefix += "." if step == "." else ".*"
        else:
            prefix += step
            step = old_names.get(prefix, step)
        text += step
    return f"{text}{blank}{rest}"
