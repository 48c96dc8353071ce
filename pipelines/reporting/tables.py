"""Tables and numbers of `report.html`."""

from collections.abc import Iterable, Sequence
from html import escape

# What a column of numbers may hold beside them.
_NO_NUMBER = ("none", "")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; every cell is escaped. Columns of numbers are set to the right."""
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
    # To be scrolled with the keyboard where it is wider than the screen.
    return f'<div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def percent(number: float) -> str:
    """Return a share in percent: one decimal, two below 1%."""
    return f"{number:.2%}" if 0 < number < 0.01 else f"{number:.1%}"


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent."""
    return percent(part / whole) if whole else _NO_NUMBER[0]


def quotient(first: int, second: int) -> str:
    """Return a mean with one decimal."""
    return f"{first / second:,.1f}" if second else _NO_NUMBER[0]


def short(number: int) -> str:
    """Return a number in millions or billions where it is large."""
    for limit, unit in ((1e9, "billion"), (1e6, "million")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:,}"
