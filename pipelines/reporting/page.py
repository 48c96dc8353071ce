"""Assemble the HTML page of a report: a self-contained file without scripts."""

from collections.abc import Sequence
from html import escape

from beambert.pipelines.reporting.style import STYLE


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]], style: str = "") -> str:
    """Return the HTML of a page.

    Args:
        title: title of the page.
        head: HTML below the title.
        sections: (id, title, HTML) of each section, in order. The page starts with links to them.
        style: additional CSS rules.
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
    """Return key figures as HTML, given their names and values, which are escaped."""
    return (
        '<dl class="tiles">'
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
        + "</dl>"
    )


def warning_list(warnings: Sequence[str]) -> str:
    """Return the warnings as an HTML list, or a paragraph without warnings."""
    if not warnings:
        return '<p class="fine">No warnings.</p>'
    return '<ul class="warnings">' + "".join(f"<li>{escape(text)}</li>" for text in warnings) + "</ul>"
