"""Measure the share of Wikipedia's prose that is kept, the remaining markup, and the speed of reading a dump.

    PYTHONPATH=. python benchmarks/wikipedia.py ../shared/data [--templates]

The words that a reader sees are those of wikipedia_prose.py, which needs mwparserfromhell: `pip install
mwparserfromhell`. wikiextractor (AGPL-3.0) is measured where it is installed: `pip install wikiextractor==3.1.0`. Times
are CPU seconds, except in the comparison of one and two processes.
"""

import bz2
import dataclasses
import html
import itertools
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.formats.wikipedia import wikiextractor_process
from beambert.pipelines.formats.wikipedia.dump import _unescape
from beambert.pipelines.formats.wikipedia.wikiextractor_process import require_package
from beambert.pipelines.formats.wikipedia.wikitext import to_paragraphs
from beambert.pipelines.segmentation.segmenters import split_sentences
from beambert.pipelines.sources.readers import read_file, split_file
from benchmarks.wikipedia_prose import WORD, visible_paragraphs

Extract = Callable[[str, str], list[str]]

SAMPLES = ("enwiki-206-pages.xml.bz2", "enwiki-2022-251-pages-truncated.xml.bz2")
PAGES_A_STREAM = 100
REPEATS = 5
RESIDUE = re.compile(r"\{\{|\}\}|\[\[|\]\]|[<>|]|\(\s*[;,]*\s*\)|''|__[A-Z]+__|formula_\d|codice_\d")


def pages(path: Path) -> list[str]:
    return re.findall(r" *<page>.*?</page>\n", bz2.decompress(path.read_bytes()).decode("utf-8"), re.DOTALL)


def articles(path: Path) -> list[tuple[str, str]]:
    """Return (title, wikitext) of the pages of a sample that the reader classifies as articles."""
    kept = {document.title for document in read_file(str(path), ReadOptions()) if not document.rejected}
    result = []
    for page in pages(path):
        title = html.unescape(re.search(r"<title>(.*?)</title>", page)[1])
        if title in kept:
            result.append((title, _unescape(re.search(r"<text[^>]*>(.*?)</text>", page, re.DOTALL)[1])))
    return result


def extractors() -> dict[str, Extract]:
    """Return the functions that the values of --wikitext_extractor select, of those installed."""
    result: dict[str, Extract] = {"beambert": to_paragraphs}
    try:
        require_package()
    except SourceError as error:
        print(error)
        return result
    result["wikiextractor"] = wikiextractor_process.to_paragraphs

    def without_templates(text: str, title: str) -> list[str]:
        with mock.patch.object(wikiextractor_process, "template_text", return_value=""):
            return wikiextractor_process.to_paragraphs(text, title)

    result["wikiextractor, templates dropped"] = without_templates
    return result


@dataclasses.dataclass
class Quality:
    """Counts of words and sentences, which add up over samples.

    Attributes:
        expected: Words that a reader sees.
        found: Words written.
        both: Words that are in both.
        sentences: Sentences written.
        residue: Sentences with residue of markup.
        marks: The signs of that residue.
        missing: Words that a reader sees and that are not written.
        worst: (share of its words that are written, title) of each page.
    """

    expected: int = 0
    found: int = 0
    both: int = 0
    sentences: int = 0
    residue: int = 0
    marks: Counter[str] = dataclasses.field(default_factory=Counter)
    missing: Counter[str] = dataclasses.field(default_factory=Counter)
    worst: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    def __add__(self, other: "Quality") -> "Quality":
        return Quality(*(getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(Quality)))

    def row(self, sample: str, extractor: str, megabytes: float, seconds: float) -> str:
        """Return the row of a table in Markdown."""
        return (
            f"| {sample} | {extractor} | {self.both / self.expected:.2%} | {self.both / self.found:.2%} "
            f"| {1000 * self.residue / self.sentences:.2f} | {megabytes / seconds:.1f} |"
        )

    def print_details(self) -> None:
        """Print the words that are missing most, the worst pages and the residue."""
        print(f"  words a reader sees: {self.expected:,}; words written: {self.found:,}")
        print("  most missed:", ", ".join(f"{word} {count}" for word, count in self.missing.most_common(25)))
        print("  worst pages:", ", ".join(f"{title} {share:.1%}" for share, title in sorted(self.worst)[:8]))
        print(f"  sentences: {self.sentences:,}; with residue of markup {self.residue}: {dict(self.marks)}")


def quality(texts: list[tuple[str, str]], extract: Extract, visible: list[list[str]]) -> Quality:
    """Compare the paragraphs of an extractor with `visible`, those of `visible_paragraphs`."""
    result = Quality()
    for (title, text), seen in zip(texts, visible, strict=True):
        paragraphs = extract(text, title)
        expected = Counter(WORD.findall(html.unescape(" ".join(seen))))
        found = Counter(WORD.findall(" ".join(paragraphs)))
        both = (expected & found).total()
        residue = [marks for p in paragraphs for s in split_sentences(p, "en") for marks in [RESIDUE.findall(s)]]
        result += Quality(
            expected.total(),
            found.total(),
            both,
            len(residue),
            sum(map(bool, residue)),
            Counter(mark for marks in residue for mark in marks),
            expected - found,
            [(both / max(expected.total(), 1), title)],
        )
    return result


def measure_quality(samples: dict[str, list[tuple[str, str]]]) -> None:
    """Print a row for each sample and extractor, and the details of each extractor."""
    visible = {name: [visible_paragraphs(text) for _, text in texts] for name, texts in samples.items()}
    functions = extractors()
    seconds = measure_cleaning(samples, functions)
    print("| dump | extractor | words kept | output words that a reader sees | residue | MB per CPU s |")
    totals: dict[str, Quality] = {}
    for extractor, extract in functions.items():
        total = Quality()
        for name, texts in samples.items():
            measured = quality(texts, extract, visible[name])
            print(measured.row(name, extractor, megabytes(texts), seconds[extractor, name]))
            total += measured
        size = sum(map(megabytes, samples.values()))
        print(total.row("both", extractor, size, sum(seconds[extractor, name] for name in samples)))
        totals[extractor] = total
    for extractor, total in totals.items():
        print(extractor)
        total.print_details()


def megabytes(texts: list[tuple[str, str]]) -> float:
    return sum(len(text.encode("utf-8")) for _, text in texts) / 1e6


def measure_cleaning(
    samples: dict[str, list[tuple[str, str]]], functions: dict[str, Extract]
) -> dict[tuple[str, str], float]:
    """Return the CPU seconds of each extractor on each sample: the least of five alternating runs."""
    seconds: dict[tuple[str, str], float] = {}
    for _ in range(5):
        for (extractor, extract), (name, texts) in itertools.product(functions.items(), samples.items()):
            start = time.process_time()
            for title, text in texts:
                extract(text, title)
            used = time.process_time() - start
            seconds[extractor, name] = min(seconds.get((extractor, name), used), used)
    return seconds


def list_templates(texts: list[tuple[str, str]]) -> None:
    """Print the templates between words of prose that the cleaner drops, most frequent first."""
    from beambert.pipelines.formats.wikipedia.templates import has_rule

    counts: Counter[str] = Counter()
    for _, text in texts:
        plain = re.sub(r"<ref[^>/]*>.*?</ref>", "", text, flags=re.DOTALL)
        for line in plain.split("\n"):
            if line and line[0].isalpha() and len(line) > 80:
                counts.update(name.strip().lower() for name in re.findall(r"\{\{([^{}|\n]+)[|}]", line))
    print(", ".join(f"{name} {count}" for name, count in counts.most_common() if not has_rule(name, "en")))


def write_multistream(data: Path, target: Path) -> int:
    """Write a multistream dump that repeats both samples; return its bytes before compression."""
    blocks = [page for name in SAMPLES for page in pages(data / "wiki-dump" / name)] * REPEATS
    streams = ["".join(blocks[start : start + PAGES_A_STREAM]) for start in range(0, len(blocks), PAGES_A_STREAM)]
    head = '<mediawiki xml:lang="en">\n  <siteinfo>\n  </siteinfo>\n'
    with target.open("wb") as file:
        for stream in (head, *streams, "</mediawiki>\n"):
            file.write(bz2.compress(stream.encode("utf-8")))
    return sum(len(stream.encode("utf-8")) for stream in streams)


def read_part(part: tuple[str, int, int | None], extractor: str = "beambert") -> tuple[int, float, int]:
    """Read a split; return its pages, the CPU seconds with those of child processes, and the process."""
    start = os.times()
    count = sum(1 for _ in read_file(part[0], ReadOptions(wikitext_extractor=extractor), *part[1:]))
    return count, sum(os.times()[:4]) - sum(start[:4]), os.getpid()


def measure_speed(data: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages-articles-multistream.xml.bz2"
        size = write_multistream(data, path) / 1e6
        parts = split_file(str(path), path.stat().st_size, ReadOptions())
        print(f"multistream dump: {size:.0f} MB of XML, {path.stat().st_size / 1e6:.1f} MB as bz2, {len(parts)} splits")
        cpu: dict[str, list[float]] = {}
        for _, extractor in itertools.product(range(3), extractors()):
            if extractor in ("beambert", "wikiextractor"):
                cpu.setdefault(extractor, []).append(sum(read_part(part, extractor)[1] for part in parts))
        for extractor, runs in cpu.items():
            print(f"  --wikitext_extractor {extractor}: {size / min(runs):.1f} MB of XML per CPU second")
        seconds: dict[int, list[float]] = {}
        for processes in (1, 2, 1, 2):
            with multiprocessing.get_context("fork").Pool(processes) as pool:
                start = time.perf_counter()
                results = pool.map(read_part, parts, chunksize=1)
                seconds.setdefault(processes, []).append(time.perf_counter() - start)
            by_process: Counter[int] = Counter()
            for _, used, process in results:
                by_process[process] += used
            total = by_process.total()
            print(
                f"  {processes} process(es): {seconds[processes][-1]:.2f} s, {sum(result[0] for result in results):,} "
                f"pages, {size / total:.1f} MB per CPU second; all CPU seconds / those of the busiest process: "
                f"{total / max(by_process.values()):.2f}"
            )
        print(f"  two processes are {min(seconds[1]) / min(seconds[2]):.2f} times as fast as one (wall clock)")
        print(f"  load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main(data: Path) -> None:
    samples = {name.partition(".")[0]: articles(data / "wiki-dump" / name) for name in SAMPLES}
    if "--templates" in sys.argv:
        list_templates([article for texts in samples.values() for article in texts])
        return
    print(f"{sum(map(len, samples.values()))} articles, {sum(map(megabytes, samples.values())):.1f} MB of wikitext")
    try:
        measure_quality(samples)
    except ImportError:
        print("words and residue are not measured: pip install mwparserfromhell")
    measure_speed(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
