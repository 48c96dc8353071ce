"""Test lists of URLs, and the normal form by which URLs are compared."""

import gzip
import random
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.cleaning.urls import domain_of, load_url_list, normalize_url
from beambert.pipelines.errors import SourceError

LIST = """# Blocked
example.org
WWW.News.example
müller.de

.pdf
.tar.gz
casino
"""


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text(LIST, encoding="utf-8")
    return load_url_list((str(path),), "--block_urls")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "http://www.example.org/a",
        "a.b.example.org/c",
        "https://EXAMPLE.org:8080/x?y#z",
        "https://joe@example.org./",
        "http://news.example/",
        "https://xn--mller-kva.de/a",
        "https://müller.de/a",
        "http://other.net/a/File.PDF?download=1",
        "http://other.net/a.tar.gz",
        "http://other.net/best-casino_games",
        "http://casino.net/",
        "http://other.net/?q=CASINO",
        "http://other.net/%63asino",
    ],
)
def test_listed(listed, url):
    assert listed.matches(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "not a url", "http://[::1", "http://other.net:99999/casino"),
        *("http://myexample.org/", "http://example.org.net/", "http://org/", "http://other.net/example.org"),
        *("http://other.net/pdf", "http://other.net/a.pdf.html", "http://other.net/a.gz", "http://x.pdf.net/"),
        *("http://other.net/casinos", "http://other.net/casinò"),
    ],
)
def test_not_listed(listed, url):
    assert not listed.matches(url)


def test_files(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfone.net\r\n"))
    (tmp_path / "b.txt").write_text("two.net")
    both = load_url_list((str(tmp_path / "a.txt.gz"), str(tmp_path / "b.txt")), "--allow_urls")
    assert both.domains == {"one.net", "two.net"}
    assert not load_url_list((), "--allow_urls").matches("http://one.net/")
    for number, (line, problem) in enumerate(
        [("http://a.net/", "line 2 is 'http://a.net/'; give a domain"), ("a b", "line 2"), ("*.net", "line 2")]
    ):
        path = tmp_path / f"bad{number}.txt"
        path.write_text(f"a.net\n{line}\n")
        with pytest.raises(SourceError, match=f"--block_urls .*{problem}"):
            load_url_list((str(path),), "--block_urls")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9.net\n")
    with pytest.raises(SourceError, match="is not UTF-8"):
        load_url_list((str(tmp_path / "latin.txt"),), "--block_urls")


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://WWW.Example.org:80/a/../b/?utm_source=x&z=1&a=2#frag", "example.org/b?a=2&z=1"),
        ("example.org/news.php?sid=7&fbclid=x", "example.org/news.php?sid=7"),
        ("https://example.org", "example.org"),
        ("https://example.org/?", "example.org"),
        ("example.org//a//b/", "example.org/a/b"),
        ("https://user:secret@müller.de/%7ejoe/%c3%a9", "xn--mller-kva.de/~joe/%C3%A9"),
        ("https://example.org/é", "example.org/%C3%A9"),
        ("https://example.org/a%2fb", "example.org/a%2Fb"),
        ("http://example.org/a;jsessionid=12AB?PHPSESSID=3&fbclid=4", "example.org/a"),
        ("http://example.org:8080/A?B=C", "example.org:8080/A?B=C"),
        ("http://[2001:db8::1]/a", "[2001:db8::1]/a"),
        *((url, "") for url in ("", "http://", "http://[::1", "http://a:b/")),
    ],
)
def test_normal_form(url, normal):
    assert normalize_url(url) == normal


PART = st.text("aZ0-._~é%:@&=+ ü/", max_size=8)
NAME = st.text("abé", min_size=1, max_size=4)
# A space at the end of a URL is not part of it.
VALUE = st.text("aZ0-~é%=+ü/", max_size=8)


@given(st.lists(PART, max_size=3), st.lists(st.tuples(NAME, VALUE), max_size=3))
def test_the_normal_form_is_its_own(path, query):
    url = f"https://example.org/{'/'.join(path)}?{'&'.join(f'{name}={value}' for name, value in query)}"
    normal = normalize_url(url)
    assert normalize_url(normal) == normalize_url(f"http://www.{normal}#fragment") == normal
    assert normal.isascii()
    shuffled = urlsplit(url).query.split("&")
    random.Random(0).shuffle(shuffled)
    assert normalize_url(f"https://example.org/{'/'.join(path)}/?utm_medium=x&{'&'.join(shuffled)}") == normal


@given(st.text(max_size=40))
def test_any_text(text):
    assert normalize_url(normalize_url(text)) == normalize_url(text)
    assert (normalize_url(text) == "") == (domain_of(text) == "")
