"""Format the tables and numbers of reports."""

from collections.abc import Iterable, Sequence
from html import escape

# Other values allowed in a column of numbers.
_NO_NUMBER = ("none", "")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table with escaped cells; columns of numbers are right-aligned."""
    rows = list(rows)
    classes = [
        ' class="number"' if all(row[column][:1].isdigit() or row[column] in _NO_NUMBER for row in rows) else ""
        for column in range(len(header))
    ]
    head, *body = (
        "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, classes, strict=True))
        for tag, cells in [("th", header), *(("td", row) for row in rows)]
    )
    lines = "".join(f"<tr>{line}</tr>" for line in body)
    # Focusable, so that the keyboard can scroll a table that is wider than the screen.
    return f'<div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def percent(number: float) -> str:
    """Return a fraction in percent, with one decimal, or two below 1%."""
    return f"{number:.2%}" if 0 < number < 0.01 else f"{number:.1%}"


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent, or "none" if the whole is 0."""
    return percent(part / whole) if whole else _NO_NUMBER[0]


def quotient(first: int, second: int) -> str:
    """Return a ratio with one decimal, or "none" if the denominator is 0."""
    return f"{first / second:,.1f}" if second else _NO_NUMBER[0]


def short(number: int) -> str:
    """Return a number, in millions or billions if it is large."""
    for limit, unit in ((1e9, "billion"), (1e6, "million")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:,}"
