"""Escape text for Markdown."""

import re


def table_cell(text: str) -> str:
    """Return a text from an untrusted file, escaped for a table cell of one line."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return " ".join(re.sub(r"([\\|`\[*_])", r"\\\1", escaped).split())
