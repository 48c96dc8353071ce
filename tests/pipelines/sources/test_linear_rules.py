"""Tests that rules equal the quadratic-time regular expressions that they replaced, on short and on real text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.cleaning import residual_markup
from beambert.pipelines.formats import html, wikiextractor, wrapped_lines
from beambert.pipelines.formats.wikipedia import dump, wikitext

# The earlier regular expressions of these rules.
QUOTES = re.compile(r"(?<![\w'])('{2,3}|'{5})(?![\s'])(.+?)(?<![\s'])\1(?!')")
HEADING = re.compile(r"(={2,6})\s*([^=].*?)\s*\1$")
TEMPLATE = re.compile(r"\{\{[^{}]{0,1000}\}\}")
EMPTY_PARENTHESES = re.compile(r" \(\s*[,;:]?\s*\)")
TITLE = re.compile(r'\btitle="(.*)"[^"]*>\s*$')
REDIRECT = re.compile(r"\s*#\s?[^\W\d]+\s*:?\s*\[\[")
EXTERNAL_LINK = re.compile(r"\[(?:(?:https?|ftp|ftps|irc|news|gopher|sftp):|mailto:|//)[^\s\[\]]*([^\[\]\n]*)\]")
BROKEN_WORD = re.compile(r"(\w+)-$")


def made_of(*parts: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=14).map("".join)


@given(made_of("'", "''", "'''", "'''''", "a", " ", "\n", "_", ".", "é"))
def test_bold_and_italic_marks_in_any_text(text):
    assert "\n".join(map(residual_markup._without_quotes, text.split("\n"))) == QUOTES.sub(r"\2", text)


@given(made_of("=", "==", "======", "a", " ", "\t", "b="))
def test_heading_marks_in_any_line(text):
    assert residual_markup._without_heading_marks(f"=={text}") == HEADING.sub(r"\2", f"=={text}")


@given(made_of("{", "}", "{{", "}}", "a", "x" * 999, "y" * 1000, "\n"))
def test_nested_templates_in_any_text(text):
    before, expected = "", text
    while before != expected:
        before, expected = expected, TEMPLATE.sub("", expected)
    assert residual_markup._cut_templates(text) == expected


@given(made_of(" (", "(", ")", ",", ";", " ", "\t", "a"))
def test_empty_parentheses_in_any_text(text):
    assert residual_markup._EMPTY_PARENTHESES.sub("", text) == EMPTY_PARENTHESES.sub("", text)


@given(made_of('title="', '"', "a", ">", " ", "<doc ", "_", "\t", "\r"))
def test_titles_in_any_line(text):
    match = TITLE.search(text)
    assert wikiextractor._title(text) == (match.group(1) if match else "")


@given(made_of("#", " ", "a", ":", "[[", "1", "\n"))
def test_redirects_in_any_text(text):
    assert bool(dump._REDIRECT.match(text)) == bool(REDIRECT.match(text))


@given(made_of("[", "http:", "//", "a", "]", " ", "\n", "mailto:"))
def test_external_links_in_any_text(text):
    assert wikitext._EXTERNAL_LINK.sub(r"\1", text) == EXTERNAL_LINK.sub(r"\1", text)


@given(made_of("a", "-", "_", "é", " "))
def test_broken_words_in_any_line(text):
    match = BROKEN_WORD.search(text)
    found = wrapped_lines._broken_word(text, "b")
    assert (found[0] if found else None) == (match.group(1) if match else None)


def test_comments_before_a_page_end_at_their_first_mark():
    page = b"<html><head>"
    assert html.is_page("a", b"<!-- a --> <!-- b - -- > -->\n" + page + b"<title>")
    assert not html.is_page("a", b"<!-- a --> text " + page + b"<title>")
