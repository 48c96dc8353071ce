"""`report.html`: whole, self-contained, harmless, and readable in a browser; its warnings one by one."""

import dataclasses
import json
import re
import shutil
import subprocess
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import beambert
from pipelines import dataset
from pipelines.overlap import Overlap
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.reporting.figures import histogram, logarithmic_histogram, rank_plot
from pipelines.reporting.report import Report, render
from pipelines.reporting.warnings import expected_masked, warnings_of
from pipelines.sources import ReadOptions, read_file
from pipelines.statistics import Statistics, document_bin_start

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'"
SECTIONS = ("warnings", "sources", "text", "vocabulary", "examples", "masks", "duplicates", "samples", "made")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    """The language reference with a document of markup, from files whose names are markup too."""
    folder = tmp_path_factory.mktemp("report")
    documents = list(read_file("language_reference", ReadOptions("language_reference")))
    lines = [json.dumps({"text": "\n".join(d.paragraphs)}) for d in documents]
    lines += [json.dumps({"text": f"{HOSTILE} He said {HOSTILE} and they said {HOSTILE}.\n" * 30})]
    (folder / "a<b onclick='x'>&lt;.jsonl").write_text("\n".join(lines))
    argv = ["build", "--input", f"{folder}/*.jsonl", "--output", f"{folder}/out", "--vocab_size", "1500"]
    assert beambert.main([*argv, "--dupe_factor", "2", "--validation_fraction", "0.15", "--num_buckets", "2"]) == 0
    return folder / "out"


class Checker(HTMLParser):
    """Collects what a page consists of and complains of elements that do not close."""

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


def test_the_page_is_whole_and_needs_nothing(output):
    page = (output / "report.html").read_text(encoding="utf-8")
    assert_harmless(page)
    checker = parsed(page)
    assert tuple(checker.ids) == SECTIONS
    targets = [value for _, name, value in checker.attributes if name == "href"]
    assert targets == [f"#{name}" for name in SECTIONS]
    text = " ".join(checker.text)
    counts = dataset.load(output).counts
    assert f"{counts['train']['documents']:,}" in text
    assert "a<b onclick='x'>&lt;.jsonl" in text.replace("*", "a<b onclick='x'>&lt;") or "*.jsonl" in text
    assert page.count("<svg") >= 5
    assert page.count("<article") == 8
    assert page.count('<mark class="mask">') > 8
    for warning in counts["warnings"]:
        assert warning in text


def test_the_page_comes_before_the_manifest_and_is_the_same_again(output, tmp_path):
    assert (output / "report.html").stat().st_mtime_ns <= (output / "dataset.json").stat().st_mtime_ns
    argv = ["pretraining-data", "--input", str(output), "--output", str(tmp_path / "out"), "--dupe_factor", "2"]
    assert beambert.main(argv) == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == (output / "report.html").read_bytes()
    counts = dataset.load(tmp_path / "out").counts
    assert counts == dataset.load(output).counts
    assert counts["overlap"]["documents_found"] == 0
    assert counts["overlap"]["documents"] == counts["documents"]["validation"]


def test_the_summary_names_report_and_warnings(output, capsys):
    argv = ["pretraining-data", "--input", str(output), "--output", str(output), "--dupe_factor", "2"]
    assert beambert.main(argv) == 0
    out = capsys.readouterr().out
    assert f"  report      {output}/report.html" in out
    assert out.count("  warning     ") == len(dataset.load(output).counts["warnings"]) >= 1


def hostile_report(output: Path, **changed) -> Report:
    """A report whose every string is markup."""
    manifest = dataset.load(output)
    size = {"documents": 1, "words": 5, "rejected": {HOSTILE: 1}}
    counts = {
        **manifest.counts,
        "inputs": {HOSTILE: size, **{f"input {i}": size for i in range(30)}},
        "languages": {HOSTILE: size},
        "documents_rejected": {HOSTILE: 3},
        "documents_reported": {HOSTILE: 3},
        "paragraphs_cleaned": {HOSTILE: 3},
        "warnings": [HOSTILE],
    }
    shards = [dataclasses.replace(shard, name=HOSTILE) for shard in manifest.shards]
    options = {**manifest.options, HOSTILE: HOSTILE, "list": [HOSTILE]}
    manifest = dataclasses.replace(manifest, counts=counts, shards=shards, options=options, versions={HOSTILE: HOSTILE})
    statistics = Statistics(piece_counts=np.array([5, 6]), tokens=11)
    by_split = {"train": statistics, "validation": Statistics()}
    made_with = PretrainingDataOptions(**changed)
    return Report(manifest, made_with, by_split, {HOSTILE: HOSTILE}, (HOSTILE, HOSTILE), [])


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"masking": "dynamic"},
        {"objective": "mlm"},
        {"objective": "sop", "pack": True},
        {"balance_next_sentence": True, "length_bins": (64, 128)},
    ],
)
def test_markup_in_any_string_is_shown_not_run(output, changed):
    page = render(hostile_report(output, **changed))
    assert_harmless(page)
    assert page.count("&lt;script&gt;") >= 12
    assert tuple(parsed(page).ids) == SECTIONS


def test_plots_of_little_are_whole():
    one, none = np.array([0, 0, 7]), np.zeros(0, np.int64)
    edges = document_bin_start(np.arange(8))
    for plot in (
        histogram({"a": one, "b": none}, "x", "things"),
        histogram({"a": none}, "x", "things"),
        histogram({"a": np.eye(1, 100_000, 99_999, dtype=np.int64)[0]}, "x", "things"),
        histogram({"a": np.array([9]), "b": one}, "x", "things"),
        logarithmic_histogram({"a": one}, edges, "x", "things"),
        logarithmic_histogram({"a": np.array([3]), "b": one}, edges, "x", "things"),
        logarithmic_histogram({"a": none}, edges, "x", "things"),
        rank_plot(np.array([5]), "x", "y"),
        rank_plot(np.array([5, 5, 0]), "x", "y"),
        rank_plot(np.arange(100_000), "x", "y"),
    ):
        parsed(plot)
        assert not re.search(r"nan|inf", plot)
        for number in re.findall(r' (?:x|y|width|height)="([^"%]+)"', plot):
            assert 0 <= float(number) <= 360


@pytest.mark.parametrize(("length", "most"), [(44, 44), (129, 44), (513, 44), (100_001, 44)])
def test_bars_hold_every_value_and_are_few(length, most):
    counts = np.random.default_rng(length).integers(0, 9, length)
    counts[-1] = 1
    bars = re.findall(r"<title>([\d,]+)(?: to ([\d,]+))?: ([\d.]+)%</title>", histogram({"a": counts}, "x", "things"))
    assert len(bars) <= most
    for first, last, share in bars:
        low, high = int(first.replace(",", "")), int((last or first).replace(",", ""))
        assert float(share) == pytest.approx(100 * counts[low : high + 1].sum() / counts.sum(), abs=0.006)
    assert sum(float(share) for _, _, share in bars) == pytest.approx(100, abs=0.3)


FINE = Statistics(
    documents=100_000,
    sentences=2_000_000,
    tokens=60_000_000,
    unknown_tokens=1000,
    sentence_lengths=np.array([0] * 30 + [2_000_000]),
    piece_counts=np.full(1000, 60_000),
    instances=500_000,
    instances_labelled_1=270_000,
    instance_tokens=60_000_000,
    tokens_truncated=5_000_000,
    tokens_packed=60_000_000,
    rows=500_000,
    positions=64_000_000,
    row_lengths=np.array([0] * 120 + [500_000]),
    masked_tokens=9_000_000,
    masked_as_mask=7_200_000,
    masked_as_other=900_000,
    masked_as_same=900_000,
)
CORPUS = {
    "documents_read": 100_000,
    "documents_rejected": {"duplicate": 900},
    "languages": {"en": {"words": 1000}, "de": {"words": 1}},
}


def warnings(train=None, corpus=None, overlap=None, options=None, held_out=None) -> list[str]:
    return warnings_of(
        {
            "train": dataclasses.replace(FINE, **(train or {})),
            "validation": dataclasses.replace(FINE, **(held_out or {})),
        },
        {**CORPUS, **(corpus or {})},
        Overlap(*(overlap or (10, 0, 100, 1))),
        PretrainingDataOptions(**(options or {})),
    )


def test_data_without_fault_raises_no_alarm():
    assert warnings() == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"held_out": {"instances": 0}}, "No document is held out"),
        ({"held_out": {"instances": 300}}, "Only 300 example(s) are held out"),
        ({"overlap": (10, 2, 100, 0)}, "2 of 10 held-out documents stand in the training text too"),
        ({"overlap": (10, 0, 100, 7)}, "7.0% of the held-out sentences stand in the training text"),
        ({"train": {"unknown_tokens": 4_800_000}}, "8.0% of tokens are [UNK]: the vocabulary does not fit this corpus"),
        ({"train": {"piece_counts": np.arange(100) // 50}}, "50.0% of the vocabulary never occurs"),
        ({"train": {"tokens": 2_345_678}}, "has 2.35 million tokens: enough to try things out"),
        ({"corpus": {"documents_rejected": {"short": 40_000, "dup": 9}}}, "40% of the documents were rejected, most"),
        ({"corpus": {"languages": {"en": {"words": 9}, "de": {"words": 9}}}}, "mixes 2 languages (de, en)"),
        ({"train": {"sentences": 110_000}}, "A document has 1.1 sentences on average"),
        ({"train": {"sentence_lengths": np.eye(1, 600, 599, dtype=int)[0] * 200_000}}, "10.0% of the sentences are lo"),
        ({"options": {"dupe_factor": 1}}, "There is one duplicate"),
        ({"train": {"instances_labelled_1": 310_000}}, "62.0% of the pairs are not next sentences, far from half"),
        ({"options": {"balance_next_sentence": True}}, "54.0% of the pairs are not next sentences, far from half"),
        ({"options": {"objective": "sop"}}, "54.0% of the pairs are swapped, far from half"),
        ({"train": {"tokens_truncated": 18_000_000}}, "30.0% of the tokens are left out, cut"),
        ({"train": {"positions": 120_000_000}}, "50% of the positions are padding"),
        (
            {"train": {"masked_tokens": 6_000_000, "masked_as_mask": 4_800_000}},
            "10.0% of the tokens are masked, not",
        ),
        ({"train": {"masked_as_mask": 7_000_000}}, "77.8% of the masked tokens became [MASK], 80% were asked for"),
    ],
)
def test_each_fault_has_its_warning(changed, says):
    found = warnings(**changed)
    assert any(says in warning for warning in found), found
    assert all("\n" not in warning and warning.endswith(".") for warning in found)
    assert len(found) <= 3


def test_expected_masks_follow_from_the_lengths():
    options = PretrainingDataOptions(max_seq_length=64, max_predictions_per_seq=8, length_bins=(16, 64))
    lengths = {5: 3, 16: 2, 17: 1, 40: 4, 64: 2}
    histogram_of_rows = np.zeros(65, np.int64)
    histogram_of_rows[list(lengths)] = list(lengths.values())
    # Of 16 positions: room for 2; of 64: for 8. round(0.75) = 1, round(2.4) = 2, round(2.55) = 3, 6, round(9.6) = 10.
    assert expected_masked(Statistics(row_lengths=histogram_of_rows), options) == 3 * 1 + 2 * 2 + 1 * 3 + 4 * 6 + 2 * 8


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


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to look at the page with (apt-get install chromium)")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 360])
def test_a_browser_shows_it_on_desktop_and_phone_in_light_and_dark(output, tmp_path, width, dark):
    page = (output / "report.html").read_text(encoding="utf-8")
    # A window is never as narrow as a phone; a frame is.
    frame = f'<iframe width="{width}" height="800" srcdoc="{escape(page.replace("</body>", f"{MEASURE}</body>"))}">'
    holder = f'<!DOCTYPE html><meta name="color-scheme" content="light dark"><meta charset="utf-8">{frame}</iframe>'
    (tmp_path / "page.html").write_text(holder, encoding="utf-8")
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={tmp_path}/profile",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--window-size=1400,1000",
    ]
    result = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", f"file://{tmp_path}/page.html"], capture_output=True, text=True, timeout=120
    )
    title = re.search(r"<title>(.*?)</title>", result.stdout, re.DOTALL)
    assert title, result.stderr
    measured = json.loads(unescape(title.group(1)))
    assert measured["width"] == width
    assert measured["scroll"] <= width
    assert (measured["outside"], measured["cut"], measured["faint"]) == ([], [], [])
    assert measured["small"] > 9
    assert (measured["background"] < 0.05) is dark
    assert measured["figures"] >= 5
