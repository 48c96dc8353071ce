"""Detect documents that contain HTML by the density of closing tags.

Prose, formulas and program text contain `<`, but rarely `</name>`. Measured on 2026-11-22 with the threshold below: 180
of 181 news pages are detected. So are 2 of 3,957 Wikipedia articles, none of 1,109 chapters of Gutenberg books, and 1
of 168 modules of Python's standard library.
"""

import re
from collections.abc import Sequence

# Name of the rule; documents that contain HTML are kept, counted and listed.
HTML_TAGS = "html_tags"
# Minimum closing tags per word.
_DENSITY = 0.02
_CLOSING_TAG = re.compile(r"</[A-Za-z][A-Za-z0-9:-]{0,30}\s*>")


def has_html(paragraphs: Sequence[str]) -> bool:
    """Return whether a document, before cleaning, has at least one closing tag per 50 words."""
    tags = sum(len(_CLOSING_TAG.findall(paragraph)) for paragraph in paragraphs if "</" in paragraph)
    return tags > 0 and tags >= _DENSITY * sum(len(paragraph.split()) for paragraph in paragraphs)
