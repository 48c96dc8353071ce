"""Test what all templates rely on: escaping, numbers, tables, and errors for undefined names."""

import re

import jinja2
import numpy as np
import pytest

from beambert.reporting import rendering

ELEMENTS = "elements.html"


def cells(header, *rows) -> list[tuple[str, str]]:
    """Return (attributes, content) of each cell of a rendered table."""
    html = str(rendering.macro(ELEMENTS, "table")(header, rows))
    return re.findall(r"<t[hd]( [^>]*)?>(.*?)</t[hd]>", html)


def test_integers_have_separators_and_none_is_empty():
    row = (12345, np.int64(1234), None, True, 1234.5, "1234")
    assert [text for _, text in cells("abcdef", row)[6:]] == ["12,345", "1,234", "", "True", "1234.5", "1234"]


def test_columns_of_numbers_are_right_aligned():
    found = cells(("name", "share", "count"), ("a", "9.1%", 3), ("b", "none", None), ("c", "", "4 of 5"))
    assert [bool(attributes) for attributes, _ in found] == 4 * [False, True, True]
    assert [bool(attributes) for attributes, _ in cells(("n",), (1,), ("-",))] == [False, False, False]


def test_rows_that_a_template_leaves_out_are_no_rows():
    assert len(cells(("a", "b"), None, (1, 2))) == 4


@pytest.mark.parametrize("value", ["<b>", "&amp;", "\"'"])
def test_values_are_escaped_in_text_and_attributes(value):
    shown = [("text", {"class": value}, value, ""), ("path", {}, "", value)]
    page = rendering.macro(ELEMENTS, "figure")(1, 1, value, [], value, shown)
    assert page.count(str(jinja2.filters.escape(value))) == 5


def test_an_undefined_name_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="title"):
        rendering.render("page.html")
