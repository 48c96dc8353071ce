"""Change bytes and JSON values as a disk, a transfer, an editor or an attacker may."""

import dataclasses
import json
from collections.abc import Callable
from random import Random
from typing import Any

# A range of a file, as start and end, and its replacement.
Splice = tuple[int, int, bytes]


def spliced(content: bytes, splice: Splice) -> bytes:
    """Return the content with a range replaced."""
    start, end, new = splice
    return content[:start] + new + content[end:]


def any_splice(random: Random, content: bytes) -> tuple[str, Splice]:
    """Return the name of a random change of a file, and the change."""
    name = random.choice(list(_SPLICES))
    start = random.randrange(len(content) + 1)
    # Headers and footers, where formats differ, are drawn more often.
    if random.random() < 0.3:
        start = min(random.randrange(64), len(content))
    elif random.random() < 0.2:
        start = max(0, len(content) - random.randrange(64))
    return name, _SPLICES[name](random, content, start)


def _flip(random: Random, content: bytes, start: int) -> Splice:
    start = min(start, len(content) - 1)
    return start, start + 1, bytes([content[start] ^ (1 << random.randrange(8))])


def _noise(random: Random, content: bytes, start: int) -> Splice:
    length = random.choice((1, 4, 16, 100))
    return start, min(start + length, len(content)), random.randbytes(length)


def _repeat(random: Random, content: bytes, start: int) -> Splice:
    return start, start, content[start : start + random.choice((1, 10, 200))]


_SPLICES: dict[str, Callable[[Random, bytes, int], Splice]] = {
    "flipped bit": _flip,
    "noise": _noise,
    "inserted noise": lambda random, content, start: (start, start, random.randbytes(random.choice((1, 8, 50)))),
    "removed range": lambda random, content, start: (start, min(len(content), start + random.choice((1, 7, 99))), b""),
    "cut": lambda random, content, start: (start, len(content), b""),
    "empty": lambda random, content, start: (0, len(content), b""),
    "zeros": lambda random, content, start: (start, min(len(content), start + 64), bytes(64)),
    "zeros to the end": lambda random, content, start: (start, len(content), bytes(len(content) - start)),
    "repeated range": _repeat,
    "appended noise": lambda random, content, start: (len(content), len(content), random.randbytes(20)),
    "only noise": lambda random, content, start: (0, len(content), random.randbytes(max(1, len(content)))),
}

_DEEP = 100_000
_PLACEHOLDER = '"@@@"'
# JSON texts that replace a value.
VALUES = {
    "null": "null",
    "a boolean": "true",
    "a negative number": "-1",
    "zero": "0",
    "a fraction": "0.5",
    "a large number": "1e30",
    "infinity": "1e999",
    "not a number": "NaN",
    "a huge integer": "9" * 5000,
    "2 ** 63": str(1 << 63),
    "an empty text": '""',
    "a text": '"x"',
    "a path": '"../../../etc/passwd"',
    "a control character": '"a\\u0000b\\u001b[31m"',
    "half a surrogate": '"\\ud800"',
    "a long text": '"' + "long " * 20_000 + '"',
    "an empty list": "[]",
    "a list": '[1, "x", null]',
    "an empty object": "{}",
    "an object": '{"x": [1]}',
    "brackets": "[" * _DEEP + "]" * _DEEP,
    "braces": '{"x":' * _DEEP + "1" + "}" * _DEEP,
    "open brackets": "[" * _DEEP,
}


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON value, starting with the empty path of the value itself."""
    paths = [path]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        paths += paths_of(child, (*path, key))
    return paths


@dataclasses.dataclass(frozen=True)
class JsonMutation:
    """A changed JSON text.

    Attributes:
        name: description of the change.
        text: the new text.
        valid: whether another job might have written the new value, so that another result is no error.
    """

    name: str
    text: str
    valid: bool


def mutated_json(random: Random, text: str) -> JsonMutation:
    """Return a JSON text with one value changed."""
    content = json.loads(text)
    path = random.choice(paths_of(content))
    if not path:
        name = random.choice(list(VALUES))
        return JsonMutation(f"all is {name}", VALUES[name], False)
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    name = random.choice([*VALUES, "missing", "twice"])
    old = parent[path[-1]]
    if name == "missing":
        del parent[path[-1]]
        return JsonMutation(f"{path} is missing", json.dumps(content), isinstance(parent, list))
    parent[path[-1]] = "@@@"
    new = json.dumps(content)
    if name == "twice":
        again = f"{json.dumps(path[-1])}: null" if isinstance(parent, dict) else json.dumps(old)
        text = new.replace(_PLACEHOLDER, f"{json.dumps(old)}, {again}")
        return JsonMutation(f"{path} is there twice", text, isinstance(parent, list) or old is None)
    text = new.replace(_PLACEHOLDER, VALUES[name])
    return JsonMutation(f"{path} is {name}", text, _same_kind(old, VALUES[name]))


def _same_kind(old: Any, new: str) -> bool:
    """Return whether a new value is of the kind of the old one, as far as a schema can check."""
    if new.startswith(("[[", '{"x":{', "9999")):
        return False
    value = json.loads(new)
    if old is None or value is None:
        return old is value
    if isinstance(old, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(old)
