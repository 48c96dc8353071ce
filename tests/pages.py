"""Check the HTML of a report with a parser, and its rendering with a browser."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium to look at the page with (apt-get install chromium)"
)


class Checker(HTMLParser):
    """A parser that collects attributes, ids and text of a page, and asserts that elements are closed in order."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def parsed(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def assert_harmless(page: str) -> None:
    checker = parsed(page)
    tags = {tag for tag, _, _ in checker.attributes}
    assert not tags & {"script", "img", "iframe", "link", "object", "embed", "base", "form"}
    names = {name for _, name, _ in checker.attributes}
    assert not any(name.startswith("on") for name in names)
    assert not names & {"src", "srcset", "style", "action"}
    assert all(value.startswith("#") for _, name, value in checker.attributes if name == "href")
    assert "<script" not in page
    assert not re.search(r"https?:|//\w|url\(|@import", page)


MEASURE = """<script>
const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = c => { const [r, g, b] = rgb(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } };
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const seen = [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !["STYLE", "SCRIPT"].includes(e.tagName));
const words = seen.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
const outside = seen.filter(e => !e.closest(".table") && e.getBoundingClientRect().right > innerWidth + 1);
const labels = [...document.querySelectorAll("svg text")];
parent.document.title = JSON.stringify({
  width: innerWidth, scroll: document.documentElement.scrollWidth, outside: outside.map(e => e.outerHTML.slice(0, 80)),
  background: light(getComputedStyle(document.body).backgroundColor),
  faint: words.filter(e => contrast(getComputedStyle(e)[e.closest("svg") ? "fill" : "color"], behind(e)) < 4.5).map(e => e.outerHTML.slice(0, 80)),
  small: Math.min(...labels.map(t => t.getBoundingClientRect().height)),
  cut: labels.filter(t => { const s = t.closest("svg").getBoundingClientRect(), r = t.getBoundingClientRect();
    return r.left < s.left - 1 || r.right > s.right + 1 || r.bottom > s.bottom + 1; }).map(e => e.outerHTML),
  figures: document.querySelectorAll("svg").length,
});
</script>"""  # noqa: E501


def look_at(page: str, folder: Path, width: int, dark: bool) -> dict[str, Any]:
    """Render a page at a width, assert that everything is readable, and return the measurements."""
    # A browser window cannot be as narrow as a phone, but a frame can.
    frame = f'<iframe width="{width}" height="800" srcdoc="{escape(page.replace("</body>", f"{MEASURE}</body>"))}">'
    holder = f'<!DOCTYPE html><meta name="color-scheme" content="light dark"><meta charset="utf-8">{frame}</iframe>'
    (folder / "page.html").write_text(holder, encoding="utf-8")
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={folder}/profile",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--window-size=1400,1000",
    ]
    result = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", f"file://{folder}/page.html"], capture_output=True, text=True, timeout=120
    )
    title = re.search(r"<title>(.*?)</title>", result.stdout, re.DOTALL)
    assert title, result.stderr
    measured = json.loads(unescape(title.group(1)))
    assert measured["width"] == width
    assert measured["scroll"] <= width
    assert (measured["outside"], measured["cut"], measured["faint"]) == ([], [], [])
    # The value is None for a page without figures.
    assert measured["small"] is None or measured["small"] > 9
    assert (measured["background"] < 0.05) is dark
    return measured
