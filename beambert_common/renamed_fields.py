"""Fields of a JSON file that an older version has under other names: read them, and name them in messages.

A table says what was renamed: {"parts": "shards", "parts.*.bucket": "partition"} maps the path of a field in the older
version to its last name now; `*` stands for every item of an array.
"""

import re
from collections.abc import Mapping
from typing import Any

from beambert_common.typed_json import JsonError

Names = Mapping[str, str]

_SEPARATORS = re.compile(r"(\[\d+\]|\.)")


def with_new_names(content: Any, names: Names) -> Any:
    """Return a value of JSON's types with its fields renamed; the value itself stays as it is.

    Args:
        content: of a file of the older version.
        names: the table of that version.

    Raises:
        JsonError: it is nested too deeply.
    """
    try:
        return _renamed(content, names, "")
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply") from error


def _renamed(value: Any, names: Names, place: str) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names, f"{place}*.") for item in value]
    if not isinstance(value, dict):
        return value
    fields = {key: _renamed(item, names, f"{place}{key}.") for key, item in value.items()}
    kept = {key: item for key, item in fields.items() if place + key not in names}
    return kept | {names[place + key]: item for key, item in fields.items() if place + key in names}


def inverse(names: Names) -> dict[str, str]:
    """Return the table that renames the fields of the newer version back."""
    return {_new_path(path, names): path.rpartition(".")[2] for path in names}


def _new_path(path: str, names: Names) -> str:
    steps = path.split(".")
    return ".".join(names.get(".".join(steps[: end + 1]), step) for end, step in enumerate(steps))


def with_old_names(message: str, names: Names) -> str:
    """Return the message of a JsonError, which begins with a path, with that path as the older file has it.

    Args:
        message: about the content that `with_new_names` returned.
        names: the table.
    """
    old_names = inverse(names)
    path, blank, rest = message.partition(" ")
    text = place = ""
    for step in _SEPARATORS.split(path):
        if _SEPARATORS.fullmatch(step):
            place += "." if step == "." else ".*"
        else:
            place += step
            step = old_names.get(place, step)
        text += step
    return f"{text}{blank}{rest}"
