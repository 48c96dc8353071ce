"""Compare libraries that extract the main text of web pages, and measure `beambert corpus` on a WARC file of 500 MB.

    make bench-html
    make bench-html ARGS="--crawl 500"

Quality is that of the article-extraction-benchmark: precision and recall of the 4-grams of words of each page, on
average over the pages, and the F1 of both averages. The 181 pages and the text that a person marked are of that
project. Libraries that are not installed are left out.
"""

import argparse
import gzip
import hashlib
import io
import itertools
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from beambert.pipelines.formats import html
from beambert.pipelines.formats.html import read_page
from benchmarks.corpus import run_command

_WORD = re.compile(r"\w+")
_FOLDS = 10
# Values of the thresholds of `beambert.pipelines.formats.html` for cross-validation.
_GRID = {
    "_MAX_LINKED": (0.3, 0.5, 0.7),
    "_MIN_TAGGED": (0.7, 0.8, 0.9, 2.0),
    "_MIN_SENTENCE_BYTES": (15, 30, 60),
    "_MIN_PROSE": (0.0, 0.3, 0.5),
}


def ngrams(text: str) -> Counter[tuple[str, ...]]:
    """Return the 4-grams of the words of a text; of a shorter text, its words."""
    words = _WORD.findall(text)
    return Counter(tuple(words[start : start + 4]) for start in range(max(len(words) - 3, bool(words))))


def compare(text: str, expected: Counter[tuple[str, ...]]) -> tuple[float | None, float | None]:
    """Return precision and recall of a page, each None if it is not defined."""
    found = ngrams(text)
    common = (found & expected).total()
    precision = common / found.total() if found else None if not expected else 0.0
    return precision, common / expected.total() if expected else None


def average(scores: Iterable[tuple[float | None, float | None]]) -> tuple[float, float, float]:
    """Return the means of precision and recall, and their F1."""
    means = []
    for values in zip(*scores, strict=True):
        defined = [value for value in values if value is not None]
        means.append(sum(defined) / len(defined))
    precision, recall = means
    return precision, recall, 2 * precision * recall / (precision + recall)


def extractors() -> Iterator[tuple[str, Callable[[bytes], str]]]:
    """Yield name and function of each installed library."""
    yield "beambert", lambda page: "\n".join(read_page(page).paragraphs)
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding
    from resiliparse.parse.html import HTMLTree

    yield (
        "resiliparse, main_content",
        lambda page: extract_plain_text(
            HTMLTree.parse_from_bytes(page, detect_encoding(page)), main_content=True, alt_texts=False, comments=False
        ),
    )
    try:
        import trafilatura
    except ImportError:
        print("left out: trafilatura")
    else:
        for fast, tables in ((True, False), (False, False), (False, True)):
            name = f"trafilatura{', fast' if fast else ''}{', with tables' if tables else ''}"
            options = {"fast": fast, "include_tables": tables, "include_comments": False}
            yield name, lambda page, options=options: trafilatura.extract(page, **options) or ""
    try:
        import lxml.html
        import readability
    except ImportError:
        print("left out: readability-lxml")
    else:
        yield (
            "readability-lxml",
            lambda page: lxml.html.fromstring(
                readability.Document(page.decode("utf-8", "replace")).summary()
            ).text_content(),
        )
    try:
        import justext
    except ImportError:
        print("left out: jusText")
    else:
        stop_words = justext.get_stoplist("English")
        yield (
            "jusText",
            lambda page: "\n".join(part.text for part in justext.justext(page, stop_words) if not part.is_boilerplate),
        )


def measure_extractors(pages: dict[str, bytes], expected: dict[str, Counter[tuple[str, ...]]]) -> None:
    """Print quality and speed of each library."""
    size = sum(map(len, pages.values())) / 1e6
    print(f"{len(pages)} pages, {size:.1f} MB\n")
    print("| library | precision | recall | F1 | MB per CPU s |\n|---|---|---|---|---|")
    for name, extract in extractors():
        extract(next(iter(pages.values())))
        start = time.process_time()
        texts = {key: extract(page) for key, page in pages.items()}
        seconds = time.process_time() - start
        precision, recall, f1 = average(compare(texts[key], expected[key]) for key in pages)
        print(f"| {name} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {size / seconds:.1f} |", flush=True)


def cross_validate(pages: dict[str, bytes], expected: dict[str, Counter[tuple[str, ...]]]) -> None:
    """Print the quality on pages that the thresholds were not chosen on."""
    defaults = {name: getattr(html, name) for name in _GRID}
    scores: dict[tuple[Any, ...], dict[str, Any]] = {}
    for values in itertools.product(*_GRID.values()):
        for name, value in zip(_GRID, values, strict=True):
            setattr(html, name, value)
        scores[values] = {key: compare("\n".join(read_page(pages[key]).paragraphs), expected[key]) for key in pages}
    for name, value in defaults.items():
        setattr(html, name, value)
    keys = sorted(pages)
    chosen = []
    for fold in range(_FOLDS):
        others = [key for number, key in enumerate(keys) if number % _FOLDS != fold]
        best = max(scores, key=lambda values: average(scores[values][key] for key in others)[2])
        chosen += [scores[best][key] for key in keys[fold::_FOLDS]]
    precision, recall, f1 = average(chosen)
    print(f"\nThresholds chosen on the other pages, {_FOLDS} folds: {precision:.3f} {recall:.3f} F1 {f1:.3f}")
    f1s = [average(each.values())[2] for each in scores.values()]
    print(f"F1 of all {len(scores)} thresholds: {min(f1s):.3f} to {max(f1s):.3f}")


def warc_records(pages: dict[str, bytes], size: int) -> Iterator[bytes]:
    """Yield the records of a crawl of about `size` bytes of pages; copies of a page differ in their words."""
    for copy in itertools.count():
        for key, page in pages.items():
            if size <= 0:
                return
            body = page.replace(b"</p>", b" %d</p>" % copy) if copy else page
            size -= len(body)
            url = f"https://{key[:3]}.example/{key[:12]}/{copy}"
            http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + body
            for kind, content in (("request", b"GET / HTTP/1.1\r\n\r\n"), ("response", http)):
                header = (
                    f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-11-01T00:00:00Z\r\n"
                    f"Content-Type: application/http; msgtype={kind}\r\nContent-Length: {len(content)}\r\n\r\n"
                )
                yield header.encode() + content + b"\r\n\r\n"


def measure_readers(pages: dict[str, bytes]) -> None:
    """Print the speed of WARC readers without extraction."""
    from fastwarc.warc import ArchiveIterator

    data = b"".join(gzip.compress(record, 6) for record in warc_records(pages, sum(map(len, pages.values()))))
    readers = {
        "FastWARC": lambda: [
            record.reader.read() for record in ArchiveIterator(io.BytesIO(data), parse_http=True) if record.http_headers
        ]
    }
    try:
        from warcio.archiveiterator import ArchiveIterator as WarcioIterator
    except ImportError:
        print("left out: warcio")
    else:
        readers["warcio"] = lambda: [record.content_stream().read() for record in WarcioIterator(io.BytesIO(data))]
    print("\n| reader of .warc.gz | MB of pages per CPU s |\n|---|---|")
    for name, read in readers.items():
        start = time.process_time()
        size = sum(map(len, read()))
        print(f"| {name} | {size / 1e6 / (time.process_time() - start):.0f} |")


def measure_crawl(pages: dict[str, bytes], megabytes: int) -> None:
    """Print time and memory of `beambert corpus` on a crawl and a fifth of it, with one and two workers."""
    print("\n| MB of pages | .warc.gz | workers | seconds | CPU s | memory | SHA-256 |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for size in (megabytes // 5, megabytes):
            path = folder / f"{size}.warc.gz"
            with path.open("wb") as file:
                for record in warc_records(pages, size * 1_000_000):
                    file.write(gzip.compress(record, 6))
            for workers in (1, 2):
                output = folder / f"{size}-{workers}"
                flags = ("--vocab_size", 8000, "--num_partitions", 8, "--direct_num_workers", workers)
                cpu, seconds, peak = run_command("corpus", "--input", path, "--output", output, *flags)
                digest = hashlib.sha256()
                for shard in sorted(output.glob("corpus/*.parquet")):
                    digest.update(shard.read_bytes())
                stored = path.stat().st_size / 1e6
                row = f"| {size} | {stored:.0f} MB | {workers} | {seconds:.0f} | {cpu:.0f} | {peak / 1e6:.0f} MB |"
                print(f"{row} {digest.hexdigest()[:12]} |", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="Folder with html-articles")
    parser.add_argument("--crawl", type=int, default=0, help="Size of the crawl in MB of pages (default: none)")
    args = parser.parse_args()
    folder = args.data / "html-articles"
    truth = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    pages = {key: gzip.decompress((folder / "html" / f"{key}.html.gz").read_bytes()) for key in truth}
    expected = {key: ngrams(page["articleBody"]) for key, page in truth.items()}
    if args.crawl:
        measure_crawl(pages, args.crawl)
        return
    measure_extractors(pages, expected)
    measure_readers(pages)
    cross_validate(pages, expected)


if __name__ == "__main__":
    main()
