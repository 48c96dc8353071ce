"""Tests of web pages: main text, metadata, encodings, hostile pages, and fields with pages."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import html
from beambert.pipelines.formats.html import Page, decode, read_page
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import find_format, read_file
from benchmarks import web_pages
from tests.conftest import with_slow

SHOP = """<!doctype html><html lang="en-GB"><head><title>Walnut desk
lamp</title><link rel="canonical" href="https://shop.example/lamp">
<meta property="article:published_time" content="2026-03-01"></head><body class="cookies-accepted">
<nav><ul><li><a href="/">Home</a></li><li><a href="/cart">Cart (0)</a></li></ul></nav>
<header><p>Free shipping on every order over fifty pounds, all through the year.</p></header>
<h1>Walnut desk lamp</h1><p>$ 89.00</p><button>Add to cart</button>
<p>A desk lamp turned from one piece of <a href="/walnut">walnut</a>, with a linen shade &amp; a brass switch.</p>
<p>Each lamp is oiled by hand, and ages with the light of the room.</p>
<script>var tracking = "A sentence in a script. ".repeat(40);</script><style>p { color: red }</style>
<div class="photo-caption">The lamp in the window of our shop in Leeds.</div>
<p><a href="/1">Oak lamp, which is smaller.</a> <a href="/2">Ash lamp, which is larger.</a></p>
<footer><p>We are a shop of six people and two dogs.</p></footer></body></html>"""

FORUM = """<html><head><title>Chain slips</title></head><body><a href="/">Index</a><h1>Chain slips</h1>
<div class="post"><div>My chain jumps on the smallest sprocket under load.<br>What could it be?</div></div>
<div class="post"><div>If the chain is new and the cassette is old, the teeth are worn.</div></div>
<div class="post"><div>That was it, thanks! New cassette and all is quiet.</div></div></body></html>"""

RECIPE = """<html lang="en"><title>Barley soup</title><body><main><h1>Barley soup</h1>
<p>This soup needs an hour and very little attention.</p><h2>Method</h2>
<ol><li>Rinse the barley and soak it for ten minutes.</li><li>Simmer everything for fifty minutes.</li></ol>
<p>Serve it with rye bread.</p></main></body></html>"""

ARABIC = """<html lang="ar"><head><meta charset="windows-1256"><title>القمر</title></head><body>
<div class="menu"><a href="/">الرئيسية</a></div><article><h1>القمر</h1>
<p>القمر هو القمر الطبيعي الوحيد للأرض، وهو خامس أكبر قمر طبيعي في المجموعة الشمسية.</p>
<p>هل تعلم أنه يبتعد عن الأرض كل سنة؟</p></article></body></html>"""

FRAMESET = """<html><head><title>Home</title></head><frameset cols="20%,80%"><frame src="menu.html">
<noframes><body>This page uses frames.</body></noframes></frameset></html>"""


def test_a_shop():
    page = read_page(SHOP.encode())
    assert page.paragraphs == [
        "A desk lamp turned from one piece of walnut, with a linen shade & a brass switch.",
        "Each lamp is oiled by hand, and ages with the light of the room.",
    ]
    assert (page.title, page.language) == ("Walnut desk lamp", "en")
    assert page.metadata == {"url": "https://shop.example/lamp", "published": "2026-03-01"}


def test_a_forum_keeps_every_post_and_line():
    assert read_page(FORUM.encode()).paragraphs == [
        "My chain jumps on the smallest sprocket under load.",
        "What could it be?",
        "If the chain is new and the cassette is old, the teeth are worn.",
        "That was it, thanks! New cassette and all is quiet.",
    ]


def test_a_recipe_keeps_its_steps_and_headings():
    assert read_page(RECIPE.encode()).paragraphs == [
        "This soup needs an hour and very little attention.",
        "Method",
        "Rinse the barley and soak it for ten minutes.",
        "Simmer everything for fifty minutes.",
        "Serve it with rye bread.",
    ]


def test_a_page_in_arabic():
    page = read_page(ARABIC.encode("cp1256"))
    assert page.language == "ar"
    assert [line[:12] for line in page.paragraphs] == ["القمر هو الق", "هل تعلم أنه "]


@pytest.mark.parametrize("content", [b"", b" ", FRAMESET.encode(), b"<html></html>", b"\0" * 100, b"\xff\xfe"])
def test_a_page_without_text_has_no_paragraphs(content):
    assert read_page(content).paragraphs == []


def test_a_page_without_a_body():
    assert read_page(b"<!DOCTYPE html><title>Notes</title><p>This sentence is read.<p>So is this one.").paragraphs == [
        "This sentence is read.",
        "So is this one.",
    ]


def test_a_text_ends_with_the_paragraphs_after_the_last_sentence():
    page = read_page(
        b"<p>The market was quiet, and nobody sold anything.</p><p>Then the rain began, and all of them left."
        b"<p>More on this tomorrow<h2>Related</h2><p>Other markets"
    )
    assert page.paragraphs[2:] == ["More on this tomorrow"]


def test_a_page_of_lists_is_kept_whole():
    page = read_page(b"<h1>Hours</h1><table><tr><td>Monday<td>9-17<tr><td>Tuesday<td>9-17</table><p>Closed on Sunday.")
    assert page.paragraphs == ["Monday\t\t9-17", "Tuesday\t\t9-17", "Closed on Sunday."]


TEXT = "Größe, naïve façade: ein Satz über Bücher und Straßen, déjà vu."


@pytest.mark.parametrize(
    ("encoding", "stated", "in_page"),
    [
        ("utf-8", "", ""),
        ("utf-8-sig", "", ""),
        ("utf-8", "iso-8859-1", "windows-1252"),
        ("utf-16", "", ""),
        ("cp1252", "ISO-8859-1", ""),
        ("cp1252", "", "iso-8859-1"),
        ("cp1252", "", ""),
        ("cp1252", "utf-8", "utf-8"),
        ("cp1252", "no-such-encoding", ""),
    ],
)
def test_encodings(encoding, stated, in_page):
    meta = f'<meta charset="{in_page}">' if in_page else ""
    page = read_page(f"<html><head>{meta}</head><body><p>{TEXT}</p></body></html>".encode(encoding), stated)
    assert page.paragraphs == [TEXT]


def test_a_page_in_utf8_with_a_broken_character_stays_utf8():
    data = f"<p>{TEXT}</p>".encode().replace("é".encode(), b"\xc3", 1)
    assert decode(data, "utf-8") == f"<p>{TEXT}</p>".replace("é", "\ufffd", 1)


def test_iso_2022_jp_is_no_utf8():
    data = "<p>日本語の文章です。</p>".encode("iso2022_jp")
    assert decode(data, "iso-2022-jp") == "<p>日本語の文章です。</p>"


@given(st.one_of(st.binary(max_size=300), st.text("<>/ap \"'=&;#x!-\n", max_size=300).map(str.encode)))
def test_no_page_is_an_error(data):
    page = read_page(data)
    assert all(line == line.strip() and line and "\n" not in line for line in page.paragraphs)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Co"]), min_size=1), max_size=8)
)
def test_text_of_paragraphs_is_kept_as_it_is(words):
    """Include `<` and `&`, which the extraction escapes."""
    sentence = f"This is a sentence with the words {' '.join(['x', *words])} and with an end."
    escaped = sentence.replace("&", "&amp;").replace("<", "&lt;")
    assert read_page(f"<p>{escaped}</p>".encode()).paragraphs == [sentence]


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01 A sentence in the metadata of an image."


@pytest.mark.parametrize(
    "data",
    [PNG, gzip.compress(b"text"), b"%PDF-1.7\n1 0 obj \x00\x01 A sentence in a PDF."],
    ids=["image", "archive", "PDF"],
)
def test_binary_content_is_not_html(data, tmp_path):
    path = tmp_path / "a.html"
    path.write_bytes(data)
    assert read_page(data) == Page([], rejected=html.NOT_HTML)
    (document,) = read_file(str(path), ReadOptions())
    assert document.rejected == html.NOT_HTML


@pytest.mark.parametrize("charset", ["", "utf-16"])
def test_control_characters_in_a_page_are_no_binary_content(charset):
    content = f"<html><body>\0\x01<p>{TEXT}</p></body></html>"
    page = read_page(content.encode(charset or "utf-8"), charset)
    assert page.rejected == ""
    assert TEXT in page.paragraphs[0]
    assert read_page(content.encode("utf-16-le"), "UTF-16LE").rejected == ""


HOSTILE = {
    "elements": b"<div>" * 1_000_000 + b"text",
    "inline elements": b"<b>" * 1_000_000 + b"text",
    "tables": b"<table><tr><td>" * 300_000,
    "lists": b"<ul><li>" * 9_000,
    "forms": b"<div><form>" * 500_000,
    "attributes": b"<p " + b"".join(b"a%d=1 " % number for number in range(200_000)) + b">text",
    "quoted attributes": b"<p " + b"".join(b'a%d=">" ' % number for number in range(40_000)) + b">text",
    "comments": b'<!-- " -->' * 30_000 + b"<p " + b"".join(b"a%d='>' " % number for number in range(9_000)) + b">text",
    "depth": b"<div>" * 600 + b"text" + b"</div>" * 600,
}


@pytest.mark.parametrize("name", with_slow(HOSTILE, ("tables", "forms", "inline elements")))
def test_pages_that_are_too_complex_are_rejected(name):
    assert read_page(HOSTILE[name]) == Page([], rejected=html.PAGE_TOO_COMPLEX)


@pytest.mark.parametrize(
    "content",
    [
        b"<p>A sentence in a list of many.</p>" * 20_000,
        b"<p>A sentence in a list of many.<br>" * 30_000,
        b"<div>" * 400 + b"<p>A sentence in a deep element.",
        b"<p>" + b"word " * 30_000 + b"end.",
        b"<script>" + b"if (a<b c d) x " * 5_000 + b"</script><p>A sentence after a script.",
    ],
    ids=["paragraphs", "without end tags", "deep", "long", "script"],
)
def test_large_pages_are_not_too_complex(content):
    page = read_page(content)
    assert page.paragraphs
    assert not page.rejected


def test_the_size_of_a_page_is_limited(tmp_path):
    path = tmp_path / "bomb.html.gz"
    path.write_bytes(gzip.compress(b"<html><body><p>" + b"word " * (html.MAX_PAGE_BYTES // 5), 1))
    (document,) = read_file(str(path), ReadOptions())
    assert (document.paragraphs, document.rejected) == ([], html.PAGE_TOO_LARGE)


def test_a_file_is_recognized(tmp_path):
    path = tmp_path / "lamp.html"
    path.write_text(SHOP)
    (document,) = read_file(str(path), ReadOptions())
    assert document.title == "Walnut desk lamp"
    assert document.metadata["url"] == "https://shop.example/lamp"
    assert [document] == list(read_file(str(path), ReadOptions("html")))


def test_a_format_without_its_package_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("beambert.pipelines.sources.readers.is_installed", lambda name: name != "resiliparse")
    path = tmp_path / "a.html"
    path.write_text(SHOP)
    message = r"a.html has the format html: package resiliparse is not installed; pip install 'beambert\[web\]'$"
    with pytest.raises(SourceError, match=message):
        find_format(str(path), ReadOptions())
    assert find_format(str(path), ReadOptions("text")).name == "text"


def test_quality_on_real_pages(shared_data):
    """Compare with the text that a person marked: the F1 of trafilatura is 0.958 (see docs/benchmarks/web-pages.md)."""
    folder = shared_data / "html-articles"
    truth = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    pages = {key: read_page(gzip.decompress((folder / "html" / f"{key}.html.gz").read_bytes())) for key in truth}
    assert not any(page.rejected for page in pages.values())
    scores = [
        web_pages.compare("\n".join(pages[key].paragraphs), web_pages.ngrams(truth[key]["articleBody"]))
        for key in truth
    ]
    assert web_pages.average(scores)[2] > 0.958


# ---- Fields with pages


RECORD = {
    "page": SHOP,
    "url": "https://a.example/",
    "score": 0.5,
    "tags": ["a", "b"],
    "date": "2026-01-02",
    "none": None,
}


def write_records(folder, suffix: str, records: list[dict]) -> str:
    path = folder / f"pages.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif suffix == "json":
        path.write_text(json.dumps(records))
    else:
        names = list(records[0])
        rows = [
            [json.dumps(row[name]) if isinstance(row[name], list) else str(row[name]) for name in names]
            for row in records
        ]
        quoted = [",".join('"' + value.replace('"', '""') + '"' for value in row) for row in [names, *rows]]
        path.write_text("\n".join(quoted) + "\n")
    return str(path)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "csv"])
def test_a_field_with_pages(tmp_path, suffix):
    path = write_records(tmp_path, suffix, [RECORD])
    (document,) = read_file(path, ReadOptions(html_field="page", keep_fields="score, tags,date"))
    page = read_page(SHOP)
    assert (document.paragraphs, document.title, document.language) == (page.paragraphs, page.title, "en")
    assert document.metadata == {
        "url": "https://a.example/",
        "published": "2026-03-01",
        "score": "0.5",
        "tags": '["a", "b"]',
        "date": "2026-01-02",
    }


def test_fields_are_kept_without_pages(tmp_path):
    path = write_records(tmp_path, "jsonl", [{"text": "A text.", "n": None, "a": {"b": 1}}, {"text": "B."}])
    first, second = read_file(path, ReadOptions(keep_fields="a.b,n"))
    assert (first.metadata, second.metadata) == ({"a.b": "1"}, {})


@pytest.mark.parametrize(
    ("suffix", "options", "message"),
    [
        ("jsonl", {"html_field": "body"}, "has no field 'body' .*; set the field with --html_field"),
        ("jsonl", {"html_field": "tags"}, "field 'tags' is a list"),
        ("jsonl", {"html_field": "page", "keep_fields": "colour"}, "no record has the field 'colour' .*--keep_fields"),
        ("parquet", {"html_field": "score"}, "column 'score' is missing or not text .*with --html_field$"),
        ("parquet", {"html_field": "page", "keep_fields": "colour"}, "column 'colour' is missing .*--keep_fields"),
        ("csv", {"html_field": "body"}, "column 'body' is missing .*--html_field"),
    ],
)
def test_a_wrong_field_is_one_line(tmp_path, suffix, options, message):
    path = write_records(tmp_path, suffix, [RECORD])
    with pytest.raises(SourceError, match=message):
        list(read_file(path, ReadOptions(**options)))


def test_two_fields_with_the_text_are_one_too_many():
    with pytest.raises(SourceError, match="--text_field and --html_field name the same content"):
        ReadOptions(text_field="a", html_field="b")
