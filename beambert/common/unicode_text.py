"""Replace characters that cannot be written to files, terminals or tables of Markdown."""

import re


def replace_surrogates(text: str) -> str:
    """Return a text with "?" for each lone surrogate, which JSON can contain but UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def escape_unprintable(text: str) -> str:
    r"""Return a text with `\uXXXX` for each unprintable character."""
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)


def table_cell(text: str) -> str:
    """Return a text from an untrusted file, escaped for a table cell of one line."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return " ".join(re.sub(r"([\\|`\[*_])", r"\\\1", escaped).split())
