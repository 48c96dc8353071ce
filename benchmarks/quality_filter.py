"""Measure the quality model of `beambert quality train`: accuracy, calibration and speed.

    python benchmarks/quality_filter.py ../shared/data

Good text is English Wikipedia and Project Gutenberg, bad text is that of news pages outside their article (menus,
teasers, licenses). Each is cut into documents of 50 to 150 words. Four of five articles, books and pages are the
training part; no file of the test part is in it. "Dirtied" is Wikipedia in which half of the words are replaced by
words of the boilerplate. "News articles kept" are those of the test pages; in one row, the articles of the other pages
are the good text of the training.

Documents per second: per CPU second of this process, scored one at a time, in English texts of that many words.
"""

import gzip
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from beambert.pipelines.cleaning.quality_model import QualityModel, TextSample, train
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus.document_steps import clean_document
from beambert.pipelines.documents import Document
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file

WORDS = (50, 150)
BLOCKS = {
    "p",
    "div",
    "li",
    "ul",
    "td",
    "tr",
    "br",
    "h1",
    "h2",
    "h3",
    "h4",
    "section",
    "nav",
    "footer",
    "header",
    "option",
}
SKIPPED = {"script", "style", "noscript", "template", "svg"}


class TextLines(HTMLParser):
    """Collect the text of a page, a line for each block."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self._line, self._skipped = [], [], 0

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        """End the line at a block."""
        self._skipped += tag in SKIPPED
        self._end(tag)

    def handle_endtag(self, tag):
        """End the line at a block."""
        self._skipped = max(0, self._skipped - (tag in SKIPPED))
        self._end(tag)

    def handle_data(self, data):
        """Add text to the line."""
        if not self._skipped:
            self._line.append(data)

    def _end(self, tag):
        if tag in BLOCKS:
            self.lines.append(" ".join("".join(self._line).split()))
            self._line = []


def pages(folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield (lines of the article, other lines) of each page."""
    truth = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    for name in sorted(truth):
        parser = TextLines()
        parser.feed(gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()).decode("utf-8", "replace"))
        body = truth[name]["articleBody"]
        plain = " ".join(body.split())
        yield body.splitlines(), [line for line in parser.lines if line and line not in plain]


def documents(lines: Iterable[str], rng: random.Random) -> list[str]:
    """Return the lines as cleaned documents of 50 to 150 words; a rest of fewer words is left out."""
    result, paragraphs, words, most = [], [], 0, rng.randint(*WORDS)
    for paragraph in clean_document(Document(list(lines)), CleaningOptions()).paragraphs:
        paragraphs.append(paragraph)
        words += len(paragraph.split())
        if words >= most:
            for start in range(0, words - WORDS[0], WORDS[1]):
                result.append(" ".join(" ".join(paragraphs).split()[start : start + WORDS[1]]))
            paragraphs, words, most = [], 0, rng.randint(*WORDS)
    return result


def parts(sources: Iterable[list[str]]) -> tuple[list[str], list[str]]:
    """Return the training part and the test part of documents, a list for each source."""
    training, test = [], []
    for number, texts in enumerate(sources):
        (test if number % 5 == 4 else training).extend(texts)
    return training, test


def dirty(texts: list[str], words: list[str], rng: random.Random) -> list[str]:
    """Return texts with half of their words replaced."""
    return [" ".join(rng.choice(words) if rng.random() < 0.5 else word for word in text.split()) for text in texts]


def fit(good: list[str], bad: list[str]) -> tuple[QualityModel, float]:
    """Return the model and the CPU seconds of its training, features included."""
    start = time.process_time()
    samples = TextSample(), TextSample()
    for sample, texts in zip(samples, (good, bad), strict=True):
        for text in texts:
            sample.add(text)
    model = train(*(sample.examples() for sample in samples)).model
    return model, time.process_time() - start


def read_texts(data: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Return (training part, test part) of each kind of text."""
    rng = random.Random(0)
    wikipedia = [each.paragraphs for each in read_file(str(data / "wiki-extracted/enwiki-2015-00.bz2"), ReadOptions())]
    english = sorted((data / "gutenberg").glob("*.txt"))
    books = [paragraph for path in english for paragraph in read_file(str(path), ReadOptions())]
    news = list(pages(data / "html-articles"))
    return {
        "wikipedia": parts(documents(lines, rng) for lines in wikipedia),
        "gutenberg": parts(documents(book.paragraphs, rng)[:50] for book in books),
        "boilerplate": parts(documents(lines, rng) for _, lines in news),
        "articles": parts(documents(lines, rng) for lines, _ in news),
    }


def main() -> None:
    """Print the tables."""
    texts = read_texts(Path(sys.argv[1]))
    rng = random.Random(1)
    menu = [word for text in texts["boilerplate"][0] for word in text.split()]
    dirtied = tuple(dirty(part, menu, rng) for part in texts["wikipedia"])
    good = [texts["wikipedia"][number] + texts["gutenberg"][number] for number in (0, 1)]
    columns = ["bad text", "training good, bad", "test good, bad", "good kept at 0.5", "bad rejected at 0.5"]
    columns += ["news articles kept", "log loss", "calibration error", "training s"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    articles, boilerplate = texts["articles"], texts["boilerplate"]
    for name, good_texts, bad in (
        ("boilerplate", good[0], boilerplate),
        ("boilerplate; good text is news articles", articles[0], boilerplate),
        ("dirtied Wikipedia", good[0], dirtied),
    ):
        model, seconds = fit(good_texts, bad[0])
        scores = [np.array([model.probability(text) for text in each]) for each in (good[1], bad[1], articles[1])]
        logs = [-np.log(np.maximum(right, 1e-6)).mean() for right in (scores[0], 1 - scores[1])]
        print(
            f"| {name} | {len(good_texts):,}, {len(bad[0]):,} | {len(good[1]):,}, {len(bad[1]):,} | "
            f"{(scores[0] >= 0.5).mean():.1%} | {(scores[1] < 0.5).mean():.1%} | {(scores[2] >= 0.5).mean():.1%} | "
            f"{np.mean(logs):.3f} | {calibration_error(scores[0], scores[1]):.3f} | {seconds:.1f} |",
            flush=True,
        )
    print("\n| words | documents per second | MB/s |\n|---|---|---|")
    long = " ".join(good[1]).split()
    for words in (30, 50, 100, 300, 1000):
        sources = [" ".join(long[start : start + words]) for start in range(0, len(long) - words, words)]
        sources = (sources * (1 + 20_000 // len(sources)))[:20_000]
        start = time.process_time()
        for text in sources:
            model.probability(text)
        seconds = time.process_time() - start
        size = sum(len(text.encode()) for text in sources)
        print(f"| {words} | {len(sources) / seconds:,.0f} | {size / seconds / 1e6:.0f} |", flush=True)


def calibration_error(good: np.ndarray, bad: np.ndarray) -> float:
    """Return the mean difference of probability and fraction of good texts, in tenths; classes have equal weights."""
    probabilities = np.concatenate([good, bad])
    weights = np.concatenate([np.full(len(good), 0.5 / len(good)), np.full(len(bad), 0.5 / len(bad))])
    is_good = np.arange(len(probabilities)) < len(good)
    bins = np.minimum((probabilities * 10).astype(int), 9)
    return float(sum(abs((weights * (probabilities - is_good))[bins == number].sum()) for number in range(10)))


if __name__ == "__main__":
    main()
