"""The page of every report: one file that needs nothing from outside and runs no script."""

from collections.abc import Sequence
from html import escape

from pipelines.reporting.style import STYLE


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]], style: str = "") -> str:
    """Return a whole page.

    Args:
        title: its name.
        head: HTML under the title.
        sections: (id, title, HTML) of each, in order; the page begins with links to them.
        style: rules that only this kind of page needs.
    """
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{escape(heading)}</h2>{content}</section>' for name, heading, content in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}{style}</style></head><body><header><h1>{escape(title)}</h1>{head}"
        f'<nav aria-label="Sections">{links}</nav></header><main>{body}</main></body></html>\n'
    )


def tiles(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the numbers that matter most as HTML: names and values, escaped."""
    return (
        '<dl class="tiles">'
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
        + "</dl>"
    )


def warning_list(warnings: Sequence[str]) -> str:
    """Return the warnings as a list, or a sentence where there are none."""
    if not warnings:
        return '<p class="fine">Nothing unusual was found.</p>'
    return '<ul class="warnings">' + "".join(f"<li>{escape(text)}</li>" for text in warnings) + "</ul>"
