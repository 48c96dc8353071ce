"""Completion markers: small JSON files with a checksum that record finished work, from which a stopped job resumes."""

import hashlib
import json
from typing import Any, TypeVar

from beambert.common.typed_json import convert, decode
from beambert.pipelines.io.atomic_files import read_bytes, write_text

T = TypeVar("T")


def write_marker(path: str, content: Any) -> None:
    """Write a completion marker.

    Args:
        path: the new file, on any Beam filesystem.
        content: JSON value.
    """
    text = json.dumps(content)
    write_text(path, json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}))


def read_marker(path: str, content_type: type[T]) -> T | None:
    """Return the content of a completion marker, or None if it is missing or corrupt, so that the work is repeated.

    Args:
        path: the file.
        content_type: type of the content, for `beambert.common.typed_json.convert`.
    """
    try:
        marker = decode(read_bytes(path), dict[str, str])
        content = marker["content"]
        if hashlib.sha256(content.encode()).hexdigest() != marker["sha256"]:
            return None
        return convert(json.loads(content), content_type)
    except (OSError, ValueError, KeyError):
        return None
