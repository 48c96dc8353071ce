"""Format counts, durations, and characters that cannot be written to files, terminals or tables of Markdown."""

import re
from collections.abc import Sequence


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 file", "3 files", "2 copies" with the plural "copies"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Return a duration as "45 s", "1 min 46 s", "12 min", "3.4 h" or "2.1 days"."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


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


def join_first(names: Sequence[str], most: int = 6) -> str:
    """Return names as one line: all, or the first `most` and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
