"""Test that documents with HTML are detected, and other text is not."""

import gzip
import re

import pytest

from beambert.pipelines.cleaning.residual_markup import has_html
from beambert.pipelines.corpus.corpus_warnings import source_warnings
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file


@pytest.mark.parametrize(
    "text",
    [
        "if (a < b && b > c) { x <<= 2; }",
        "0 < x < 1 </ 2, and a <= b </= c",
        "std::vector<std::vector<int>> v;",
        "<b> without an end",
        "read </etc/passwd and </dev/null",
        "",
    ],
)
def test_signs_of_formulas_and_programs_are_no_html(text):
    assert not has_html([text])


def test_a_mention_of_a_tag_in_a_long_text_is_no_html():
    assert not has_html(["A paragraph ends with </p>, says the book. " + "It says more. " * 40])
    assert has_html(["<p>Great product.</p>"])
    assert has_html(["A line.", "<li>One</li>", "<li>Two</li >"])


def test_real_pages_and_real_text(shared_data):
    def closing_tags(text: str) -> int:
        return len(re.findall("</[a-z]", text, re.IGNORECASE))

    pages = [
        gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        for path in sorted((shared_data / "html-articles/html").glob("*.gz"))
    ]
    assert sum(has_html(page.splitlines()) for page in pages) >= 0.99 * sum(closing_tags(page) > 10 for page in pages)
    articles = list(read_file(str(shared_data / "wiki-extracted/enwiki-2015-00.bz2"), ReadOptions()))
    assert sum(has_html(document.paragraphs) for document in articles) < 0.01 * len(articles)
    for path in sorted((shared_data / "gutenberg").glob("*.txt"))[::20]:
        assert not any(has_html(document.paragraphs) for document in read_file(str(path), ReadOptions()))


def test_warning_requires_a_minimum_fraction_of_documents():
    counts = {"documents": {"train": 900, "validation": 100}, "documents_reported": {"html_tags": 9}}
    assert source_warnings(counts) == []
    counts["documents_reported"]["html_tags"] = 10
    (warning,) = source_warnings(counts)
    assert "10 of 1,000 documents (1%) contain HTML" in warning
