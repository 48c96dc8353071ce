"""Render the templates of reports.

Every template escapes the values that it shows. An integer has thousands separators, and None is empty.
"""

import functools
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from beambert.reporting import numbers


def render(template: str, **content: Any) -> str:
    """Return a rendered template.

    Args:
        template: name of a file in `templates/`.
        content: the variables of the template.
    """
    # A page collects the links to its sections in `contents`.
    return _environment().get_template(template).render(contents=[], **content)


def macro(template: str, name: str) -> Callable[..., Markup]:
    """Return a macro of a template, which returns HTML."""
    return getattr(_environment().get_template(template).module, name)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(["html"]),
        finalize=_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": numbers.percent, "short": numbers.short}
    environment.globals |= {"number_columns": _number_columns, "quotient": numbers.quotient, "share": numbers.share}
    return environment


def _text(value: Any) -> Any:
    """Return an integer with thousands separators, "" for None, and other values unchanged."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else value


def _number_columns(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Return for each column of a table whether all of its cells are numbers, "none" or empty."""
    cells = [[str(_text(row[column])) for row in rows] for column in range(len(header))]
    return [all(cell[:1].isdigit() or cell in (numbers.NONE, "") for cell in column) for column in cells]
